"""A virtual environment with a wheel of dragoman, which borrows everything else; no compiler is on its PATH."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CleanEnvironment", "install"]


@dataclass(frozen=True)
class CleanEnvironment:
    """Where a wheel was installed."""

    home: Path

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"

    @property
    def dragoman(self) -> Path:
        return self.home / "bin" / "dragoman"

    @property
    def variables(self) -> dict[str, str]:
        """The environment's own programs and nothing else on PATH: no compiler either."""
        return {**os.environ, "PATH": str(self.home / "bin")}

    def run(self, *command: str | Path, timeout_s: float = 900) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(part) for part in command],
            env=self.variables,
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def output(self, *arguments: str) -> str:
        """What its Python prints."""
        done = self.run(self.python, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def install(wheel: Path, home: Path) -> CleanEnvironment:
    """Only the wheel is installed: what it depends on is found in the environment of the tests."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    environment = CleanEnvironment(home)
    pip = [sys.executable, "-m", "pip", "--python", str(environment.python), "install", "--no-deps", "--quiet", str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    # A path in a .pth file is searched, but the .pth files in it are not read: our editable install stays out of sight.
    packages = home / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    borrowed = [sysconfig.get_path("purelib"), *(path for path in sys.path if path.endswith("site-packages"))]
    (packages / "borrowed.pth").write_text("\n".join(dict.fromkeys(borrowed)) + "\n", encoding="utf-8")
    return environment
