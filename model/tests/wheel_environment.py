"""A virtual environment with the wheel in it, as a user's: outside the repository.

The packages that the wheel requires are this interpreter's, seen through a .pth file.
"""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

WHEELS = Path("wheel")  # where //:wheel is, seen from a test


class WheelEnvironment:
    """The environment in `folder`, made here, with nothing of ours in it before `install`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.python = folder / "bin" / "python"
        venv.create(folder, symlinks=True)
        base = {"base": str(folder), "platbase": str(folder)}
        self.site_packages = Path(sysconfig.get_path("purelib", "venv", vars=base))
        borrowed = [path for path in sys.path if path.endswith("-packages")]
        (self.site_packages / "borrowed.pth").write_text("\n".join(borrowed))

    def install(self) -> None:
        """Has pip install the wheel, which fails if a requirement is not here already."""
        (wheel,) = WHEELS.glob("*.whl")
        self.run("-m", "pip", "install", "--no-index", "--no-input", "--no-cache-dir",
                 "--disable-pip-version-check", str(wheel.resolve()))

    def run(self, *arguments: str) -> str:
        """What Python prints, called with `arguments`.

        Raises:
            AssertionError: it fails; says all that it printed.
        """
        done = subprocess.run([self.python, *arguments], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, **self.process_settings())
        assert done.returncode == 0, f"{arguments} failed:\n{done.stdout}"
        return done.stdout

    def process_settings(self, **variables: str) -> dict:
        """Where programs of the environment run, for `subprocess`: they see no repository."""
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environ |= variables
        return {"cwd": self.folder, "env": environ}
