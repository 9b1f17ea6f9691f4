// Shows the values under the pointer. The plots are complete without it.
for (const svg of document.querySelectorAll("svg[data-hover]")) {
  const places = JSON.parse(svg.dataset.hover);
  if (!places.length) continue;
  const cross = svg.querySelector(".cross");
  const tip = svg.parentElement.appendChild(document.createElement("div"));
  tip.className = "tip";
  const hide = () => { cross.style.visibility = tip.style.visibility = "hidden"; };
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const x = (event.clientX - box.left) * scale;
    const [at, title, ...rows] = places.reduce((best, one) => (Math.abs(one[0] - x) < Math.abs(best[0] - x) ? one : best));
    tip.textContent = [title, ...rows.map(([name, value]) => `${name} ${value}`)].join(" · ");
    cross.setAttribute("transform", `translate(${at} 0)`);
    const from = box.left - svg.parentElement.getBoundingClientRect().left + at / scale;
    tip.style.left = `${Math.max(4, Math.min(from + 10, svg.parentElement.clientWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${box.top - svg.parentElement.getBoundingClientRect().top + 4}px`;
    cross.style.visibility = tip.style.visibility = "visible";
  });
}
