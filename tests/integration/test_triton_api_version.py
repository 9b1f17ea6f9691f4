"""The backend in a real Triton whose backend API has another version than the one it was written for.

No such Triton can be installed beside ours, so a library that is loaded before it answers the backend's question for it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from compiled import can_compile, shared_library
from dragoman import native
from served import START_TIMEOUT_S, Server, launch

pytestmark = [can_compile, pytest.mark.skipif(native.backend_library() is None, reason="the Triton backend is not built")]

ANSWER = """
extern "C" void* TRITONBACKEND_ApiVersion(unsigned* major, unsigned* minor) {{
  *major = {major};
  *minor = {minor};
  return nullptr;
}}
"""


@pytest.fixture
def api_version(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every Triton that the test starts has this version of the backend API."""
    major, minor = request.param
    library = shared_library(tmp_path / "version.so", ANSWER.format(major=major, minor=minor))
    monkeypatch.setenv("LD_PRELOAD", str(library))
    return f"{major}.{minor}"


@pytest.mark.parametrize(
    ("api_version", "way_out"),
    [
        ((0, 99), "use Triton 2.39 (23.10) or newer"),
        ((1, 15), "use Triton 2.39 (23.10) or newer"),
        ((2, 0), "use an older Triton or a newer dragoman"),
    ],
    indirect=["api_version"],
)
def test_serve_names_the_version_that_is_needed_and_the_one_that_is_there(
    api_version: str, way_out: str, reference_bundle: Path
) -> None:
    process = launch(["--bundle", str(reference_bundle), "--threads", "1"])
    try:
        output, complaint = process.communicate(timeout=START_TIMEOUT_S)
    finally:
        process.kill()
    assert (process.returncode, "ready:" in output) == (1, False)
    needed = "dragoman's backend needs version 1.16 or a later minor version of Triton's backend API"
    assert f"{needed}; this Triton has {api_version}: {way_out}" in complaint.splitlines()[-1]


@pytest.mark.parametrize("api_version", [(1, 16)], indirect=True)
@pytest.mark.usefixtures("api_version")
def test_the_oldest_version_that_is_enough_is_served(reference_bundle: Path) -> None:
    with Server.start([f"en-de={reference_bundle}"], "--threads", "1") as server:
        caller = server.caller()
        assert caller.translate(["Where is the station?"]).best == ["Wo ist der Bahnhof?"]
        caller.close()
