#!/usr/bin/env python3
"""The licences of the crates that the packages have compiled in: writes THIRD-PARTY-NOTICES.txt.

    tools/notices.py            writes the file
    tools/notices.py --check    fails when the file is not what it would write

A crate that is compiled into no package (build scripts, macros, tests, benchmarks) is not in the file.
"""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE = ROOT / "THIRD-PARTY-NOTICES.txt"
PACKAGES = {"onelock-python", "onelock-node", "onelock-c", "onelock-cli", "onelock-uniffi"}
# every crate must be under one of these, and where it says AND under one for each part
ACCEPTED = {"MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "ISC", "Unicode-3.0", "Zlib"}
# further licences, of these crates alone; deny.toml says why
EXCEPTIONS = {"uniffi": "MPL-2.0", "uniffi_core": "MPL-2.0", "uniffi_pipeline": "MPL-2.0"}
TEXT = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)", re.IGNORECASE)
HEAD = """Third-party notices

The packages of onelock have the standard library of Rust (MIT OR Apache-2.0; https://github.com/rust-lang/rust) and
the following crates compiled in. Where a crate offers a choice of licences, any of them may
be chosen. Those under the MPL-2.0 are only in the package for Kotlin, unchanged; their source is at the address beside them and
on crates.io. The texts follow the list, each with the crates that carry it.
"""


def compiled_in():
    """The crates, in order of name and version."""
    words = ["cargo", "metadata", "--locked", "--format-version", "1"]
    metadata = json.loads(subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    crates = {crate["id"]: crate for crate in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    left = [crate["id"] for crate in crates.values() if crate["name"] in PACKAGES]
    assert len(left) == len(PACKAGES), left
    found = set()
    while left:
        crate = left.pop()
        if crate in found or any("proc-macro" in target["kind"] for target in crates[crate]["targets"]):
            continue
        found.add(crate)
        for dependency in nodes[crate]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                left.append(dependency["pkg"])
    chosen = [crates[crate] for crate in found if crates[crate]["source"] is not None]
    return sorted(chosen, key=lambda crate: (crate["name"], crate["version"]))


def texts_of(crate):
    """The licence texts that a crate carries."""
    folder = pathlib.Path(crate["manifest_path"]).parent
    files = sorted(path for path in folder.iterdir() if path.is_file() and TEXT.match(path.name))
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in files if path.suffix not in {".rs", ".toml"})
    return [re.sub(r"[ \t]+$", "", text.replace("\r\n", "\n"), flags=re.MULTILINE).strip("\n") for text in texts]


def notices():
    """The whole file."""
    crates = compiled_in()
    names = {crate["id"]: f"{crate['name']} {crate['version']}" for crate in crates}
    lines, carriers = [HEAD], {}
    for crate in crates:
        licence = crate["license"] or ""
        accepted = ACCEPTED | {EXCEPTIONS.get(crate["name"])}
        if not all(accepted & set(re.split(r"[/() ]+", part)) for part in licence.split(" AND ")):
            sys.exit(f"{names[crate['id']]}: the licence {licence!r} is none of those that are accepted")
        lines.append(f"{names[crate['id']]}: {licence}; {crate['repository'] or 'no address given'}")
        for text in texts_of(crate):
            carriers.setdefault(" ".join(text.split()), (text, []))[1].append(names[crate["id"]])
    for text, of in carriers.values():
        lines += ["", "-" * 100, ", ".join(dict.fromkeys(of)), "-" * 100, text]
    return "\n".join(lines) + "\n"


def main():
    new = notices()
    if sys.argv[1:] == ["--check"]:
        if not FILE.exists() or FILE.read_text(encoding="utf-8") != new:
            sys.exit(f"{FILE.name} is not up to date: run tools/notices.py")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        FILE.write_text(new, encoding="utf-8")


main()
