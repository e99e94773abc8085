#!/usr/bin/env python3
"""tools/cli/wheel.py COMMAND VERSION FOLDER: the command as a wheel, which puts it on PATH. Prints the file.

A wheel is an archive of a known form, and this one has no Python in it; so nothing is compiled again for it.
"""

import base64
import hashlib
import pathlib
import platform
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LICENCES = ["LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY-NOTICES.txt"]
METADATA = """\
Metadata-Version: 2.4
Name: onelock-cli
Version: {version}
Summary: onelock, the command: run a command under a distributed lock, and see what is locked
License-Expression: MIT OR Apache-2.0
{licences}
Requires-Python: >=3.8
Description-Content-Type: text/markdown

{readme}"""


def is_static(command):
    """Whether it needs no C library, and so runs on every Linux."""
    listed = subprocess.run(["ldd", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout
    return "not a dynamic executable" in listed or "statically linked" in listed


def main():
    """Writes the wheel."""
    command, version, folder = sys.argv[1:]
    machine = platform.machine()
    tags = ["manylinux_2_17", "musllinux_1_1"] if is_static(command) else ["linux"]
    tag = "py3-none-" + ".".join(f"{system}_{machine}" for system in tags)
    info = f"onelock_cli-{version}.dist-info"
    texts = {name: (ROOT / name).read_bytes() for name in LICENCES}
    readme = (ROOT / "cli/README.md").read_text(encoding="utf-8")
    licences = "\n".join(f"License-File: {name}" for name in LICENCES)
    single = [f"Tag: py3-none-{system}_{machine}" for system in tags]
    files = {
        f"onelock_cli-{version}.data/scripts/onelock": pathlib.Path(command).read_bytes(),
        f"{info}/METADATA": METADATA.format(version=version, licences=licences, readme=readme).encode(),
        f"{info}/WHEEL": "\n".join(["Wheel-Version: 1.0", "Generator: onelock", "Root-Is-Purelib: false", *single, ""]).encode(),
        **{f"{info}/licenses/{name}": text for name, text in texts.items()},
    }
    record = []
    file = pathlib.Path(folder) / f"onelock_cli-{version}-{tag}.whl"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name, content in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}")
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
            wheel.writestr(entry, content)
        record.append(f"{info}/RECORD,,")
        wheel.writestr(f"{info}/RECORD", "\n".join([*record, ""]))
    print(file)


main()
