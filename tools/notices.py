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
    # with the features that the packages switch on, not those of tests and benchmarks beside them
    words = ["cargo", "tree", "--locked", "--target", "all", "--edges", "normal,no-proc-macro", "--prefix", "none"]
    words += ["--no-dedupe", "--format", "{p}", *(word for name in sorted(PACKAGES) for word in ("--package", name))]
    tree = subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    assert {name for name, _ in found} >= PACKAGES, found
    crates = [crate for crate in metadata["packages"] if (crate["name"], f"v{crate['version']}") in found]
    assert len(crates) == len(found), "a crate of the tree is not in the metadata"
    chosen = [crate for crate in crates if crate["source"] is not None]
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
