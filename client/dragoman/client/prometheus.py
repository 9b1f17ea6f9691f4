"""A server's metrics endpoint: Prometheus text over HTTP, read and compared."""

from __future__ import annotations

import http.client
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from dragoman.errors import TransportError, UsageError

__all__ = ["Scrape", "beside", "check_metrics_url", "metrics_url_of", "scrape"]

METRICS_PORT = 8002
_LOCAL_HOSTS = ("127.0.0.1", "0.0.0.0", "::", "::1", "localhost")  # noqa: S104 - compared, not bound
_TIMEOUT_S = 3.0
_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Series = tuple[str, tuple[tuple[str, str], ...]]
"""A metric's name and its labels in order."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """All numbers of an endpoint at one moment."""

    at_s: float
    values: Mapping[Series, float]

    def values_of(self, name: str, **labels: str) -> list[float]:
        """Every series of `name` that has these labels; none when the server does not know the metric."""
        wanted = set(labels.items())
        return [value for (found, having), value in self.values.items() if found == name and wanted <= set(having)]

    def total(self, name: str, **labels: str) -> float:
        """The sum over every series of `name` that has these labels; 0 when there is none."""
        return sum(self.values_of(name, **labels))

    def label_values(self, name: str, label: str) -> list[str]:
        """The values of a label over the series of `name`."""
        return sorted({dict(having).get(label, "") for found, having in self.values if found == name} - {""})

    def growth(self, earlier: Scrape, name: str, **labels: str) -> float:
        """How much `name` grew since `earlier`; a counter that fell began again at 0."""
        was, is_now = earlier.total(name, **labels), self.total(name, **labels)
        return is_now - was if is_now >= was else is_now

    def rate(self, earlier: Scrape, name: str, **labels: str) -> float:
        """How much `name` grew per second since `earlier`."""
        return self.growth(earlier, name, **labels) / max(self.at_s - earlier.at_s, 1e-9)

    @classmethod
    def parse(cls, text: str, at_s: float) -> Scrape:
        """Read the text format; what is no sample is left out."""
        values = {}
        for line in text.splitlines():
            sample = None if line.startswith("#") else _SAMPLE.fullmatch(line.strip())
            if sample is not None and _is_number(sample["value"]):
                labels = tuple(sorted((name, _unescaped(value)) for name, value in _LABEL.findall(sample["labels"] or "")))
                values[sample["name"], labels] = float(sample["value"])
        return cls(at_s, values)


def scrape(url: str) -> Scrape:
    """The endpoint's numbers now; TransportError when it can't be read."""
    check_metrics_url(url)
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310  # http(s) only, see above
            text = answer.read().decode("utf-8", "replace")
            return Scrape.parse(text, time.monotonic())
    except (OSError, urllib.error.URLError, http.client.HTTPException, ValueError) as error:
        raise TransportError(f"the metrics at {url} can't be read: {getattr(error, 'reason', error)}") from None


def check_metrics_url(url: str) -> None:
    """UsageError for an address that is not one of a web server."""
    if not url.startswith(("http://", "https://")):
        example = f"http://localhost:{METRICS_PORT}/metrics"
        raise UsageError(f"the metrics address {url!r} must begin with http:// or https://, like {example}")


def metrics_url_of(target: str) -> str:
    """Where Triton has its metrics by default: the same host, port 8002."""
    return f"http://{_host_of(target)}:{METRICS_PORT}/metrics"


def beside(url: str, target: str) -> str:
    """The endpoint that the server at `target` names, on the host that was dialled where it names its own loopback."""
    parts = urllib.parse.urlsplit(url)
    if parts.hostname not in _LOCAL_HOSTS:
        return url
    port = "" if parts.port is None else f":{parts.port}"
    return parts._replace(netloc=f"{_host_of(target)}{port}").geturl()


def _host_of(target: str) -> str:
    return target.rpartition("/")[2].rpartition(":")[0]  # without the dns:// that gRPC wants before a name


def _unescaped(value: str) -> str:
    return re.sub(r"\\(.)", lambda escaped: "\n" if escaped[1] == "n" else escaped[1], value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
