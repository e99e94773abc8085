#!/usr/bin/env python3
"""Writes the options and addresses of tests/spec/options.toml into the code and the documents of every language.

    tools/options.py            writes
    tools/options.py --check    fails when something is not what it would write

Tables are found by their first line. In code the place is between the comments `written by tools/options.py: NAME` and
`end of NAME`.
"""

import pathlib
import re
import subprocess
import sys
import textwrap

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    from pip._vendor import tomli as tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
SPEC = tomllib.loads((ROOT / "tests/spec/options.toml").read_text(encoding="utf-8"))
OPTIONS, ADDRESSES = SPEC["option"], SPEC["address"]
NAMES = {option["name"] for option in OPTIONS}
YEAR = 31_536_000_000
WIDTH = 120


def camel(name):
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def for_language(text, language):
    """The names of options in a text, as the language writes them."""
    if language not in {"node", "kotlin"}:
        return text
    return re.sub(r"`(\w+)`", lambda word: f"`{camel(word[1])}`" if word[1] in NAMES else word[0], text)


def span(ms):
    """Milliseconds for people."""
    if ms == YEAR:
        return "one year"
    return "0" if ms == 0 else f"{ms} ms" if ms % 1000 else f"{ms // 1000} s"


def default(option, language):
    """What holds where the option is not set."""
    if "unset" in option:
        return option["unset"]
    value, kind = option["default"], option["type"]
    if kind == "duration":
        return {"python": f"{value / 1000:g}", "ruby": f"{value / 1000:g}", "node": str(value)}.get(language, span(value))
    if kind == "flag":
        yes, no = {"python": ("True", "False"), "readme": ("yes", "no")}.get(language, ("true", "false"))
        return yes if value else no
    if kind in {"grade", "notify"}:
        word = f"ONELOCK_{kind}_{value}".upper() if language == "c" else value
        return f"`{word}`" if language in {"c", "node"} else word
    return str(value)


def limits(option):
    """The limits in words; that no duration is above one year is said once for all."""
    low, high, kind = option.get("min"), option.get("max"), option["type"]
    if "limit" in option:
        words = f"at least {span(low)}, " if low else f"at most {high} bytes, " if high else ""
        return words + option["limit"]
    if kind == "duration":
        return f"{span(low)} to one year" if low and low > 1 else f"at least {span(low)}" if low else ""
    if kind == "share":
        return f"{low} to {high}"
    return f"at most {high} bytes" if high else ""


def sentence(option, language):
    """What it is, with its limits."""
    says = for_language(option["says"], language)
    words = for_language(limits(option), language)
    return f"{says} ({words})" if words else says


def paragraphs(option, language):
    """The documentation of one option by itself."""
    text = sentence(option, language)
    first = f"{text[0].upper()}{text[1:]}. Default: {default(option, language)}."
    more = [for_language(option[key], language) for key in ("more", language) if key in option]
    return [first, *more]


def comment(option, language, indent):
    """The same as a comment of the language."""
    first, *more = paragraphs(option, language)
    mark = {"c": "/// "}.get(language, " * ")
    room = WIDTH - indent - len(mark)
    lines = textwrap.wrap(first, room)
    for text in more:
        for part in text.strip("\n").split("\n\n"):
            lines += ["", *(part.split("\n") if part.startswith("```") else textwrap.wrap(part, room))]
    before = " " * indent
    if language != "c":
        if len(lines) == 1 and len(lines[0]) <= room - 4:
            return [f"{before}/** {lines[0]} */"]
        return [f"{before}/**", *(f"{before}{mark}{line}".rstrip() for line in lines), f"{before} */"]
    return [f"{before}{mark}{line}".rstrip() for line in lines]


def on_client(by_hand=True):
    return [option for option in OPTIONS if by_hand or option["type"] != "function"]


def on_lock():
    return [option for option in OPTIONS if option.get("lock")]


def own():
    """Those that only a client has."""
    return [option for option in OPTIONS if not option.get("lock")]


def files(option):
    """The names under which languages without pairs have it."""
    return ["cert_file", "key_file"] if option["type"] == "certificate" else [option["name"]]


# ---- tables -----------------------------------------------------------------------------------------------------------


def readme_options():
    yield from ("| option | default | lock | meaning |", "|---|---|---|---|")
    for option in OPTIONS:
        dot = "•" if option.get("lock") else ""
        cells = [f"`{option['name']}`", default(option, "readme"), dot, sentence(option, "readme")]
        yield re.sub(r" +", " ", f"| {' | '.join(cells)} |")


def python_options():
    yield from ("| option | default | meaning |", "|---|---|---|")
    for option in OPTIONS:
        names = ", ".join(f"`{name}`" for name in files(option))
        yield f"| {names} | {default(option, 'python')} | {sentence(option, 'python')} |"


def ruby_options():
    yield from ("| option | default | lock | meaning |", "|---|---|---|---|")
    for option in OPTIONS:
        names = ", ".join(f"`{name}`" for name in files(option))
        dot = "•" if option.get("lock") else ""
        yield re.sub(r" +", " ", f"| {names} | {default(option, 'ruby')} | {dot} | {sentence(option, 'ruby')} |")


def addresses(full=False):
    yield from ("| address | what |", "|---|---|")
    for address in ADDRESSES:
        more = f". {address['more']}" if full and "more" in address else ""
        yield f"| {address['form']} | {address['what']}{more} |"


# ---- Python -----------------------------------------------------------------------------------------------------------

PYTHON_TYPES = {
    "bytes": "Name", "text": "str", "secret": "str", "path": "Path", "certificate": "Path", "flag": "bool",
    "share": "float", "count": "int", "duration": "Seconds", "grade": "Grade | str",
    "notify": 'Literal["auto", "classic", "sharded", "both"]',
}  # fmt: skip

PYTHON_CONVERSIONS = {
    "bytes": "bytes(&value, key, TRIED)?", "text": "text(&value, key)?", "secret": "text(&value, key)?",
    "path": "path(&value, key)?", "flag": "truth(&value, key)?", "share": "number(&value, key)?",
    "count": "count(&value, key)?", "duration": "duration(&value, key, TRIED)?",
    "grade": "grade(py, &text(&value, key)?)?", "notify": "notify(py, &text(&value, key)?)?",
    "function": "Provider::new(value)",
}  # fmt: skip


def python_types(options):
    for option in options:
        for name in files(option):
            yield f"    {name}: {PYTHON_TYPES[option['type']]} | None"


def python_arms(options, target):
    for option in options:
        if option["type"] == "certificate":
            for place, name in enumerate(files(option)):
                yield f'"{name}" => {{ certificate.{place} = Some(path(&value, key)?); {target} }}'
        else:
            name = option["name"]
            yield f'"{name}" => {target}.{name}({PYTHON_CONVERSIONS[option["type"]]}),'


# ---- Node.js ----------------------------------------------------------------------------------------------------------

NODE_TYPES = {
    "bytes": ("LockName", "named", "Uint8Array"), "text": ("string", "text", "String"),
    "secret": ("string", "secret", "String"), "path": ("string", "text", "String"),
    "certificate": ("string", "text", "String"), "flag": ("boolean", "flag", "bool"),
    "share": ("number", "share", "f64"), "count": ("number", "count", "u32"), "duration": ("number", "ms", "f64"),
    "grade": ("Grade", "grade", "String"), "notify": ("Notify", "ways", "String"),
    "function": ("CredentialsProvider", "provider", "u32"),
}  # fmt: skip


def node_interface(options):
    for option in options:
        for place, name in enumerate(files(option)):
            shown = option
            if option["type"] == "certificate":
                of, other = (("certificate", "keyFile"), ("private key", "certFile"))[place]
                shown = {**option, "says": f"file with this client's {of}, PEM; goes with `{other}`"}
            yield from comment(shown, "node", 2)
            yield f"  {camel(name)}?: {NODE_TYPES[option['type']][0]} | undefined"


def node_checks(options):
    for option in options:
        for name in files(option):
            yield f"  {camel(name)}: {NODE_TYPES[option['type']][1]},"


def node_fields(options):
    for option in options:
        if option["type"] == "function":
            yield "/// The number of a function; the bridge knows which it is."
        for name in files(option):
            yield f"pub {name}: Option<{NODE_TYPES[option['type']][2]}>,"


def node_setters(options, target, type_name):
    for option in options:
        name, kind = option["name"], option["type"]
        value = {
            "bytes": f"|{target}, value| {target}.{name}(&value[..])",
            "duration": f"|{target}, ms| {target}.{name}(span(ms))",
            "grade": f"|{target}, value| {target}.{name}(grade(&value))",
            "notify": f"|{target}, value| {target}.{name}(notify(&value))",
        }.get(kind, f"{type_name}::{name}")
        if kind == "certificate":
            yield f"let {target} = set({target}, self.cert_file.zip(self.key_file), |{target}, (cert, key)| {target}.{name}(cert, key));"
        elif kind != "function":
            yield f"let {target} = set({target}, self.{name}, {value});"


# ---- Kotlin -----------------------------------------------------------------------------------------------------------

UNIFFI_TYPES = {
    "bytes": ("Vec<u8>", "ByteArray"), "text": ("String", "String"), "secret": ("String", "String"),
    "path": ("String", "String"), "certificate": ("String", "String"), "flag": ("bool", "Boolean"),
    "share": ("f64", "Double"), "count": ("i32", "Int"), "duration": ("i64", "Duration"), "grade": ("Grade", "Grade"),
    "notify": ("Notify", "Notify"), "function": ("i64", "CredentialsProvider"),
}  # fmt: skip


def kotlin_properties(options, noun):
    for option in options:
        for name in files(option):
            kind, name = UNIFFI_TYPES[option["type"]][1], camel(name)
            yield from comment(option, "kotlin", 4)
            yield from ("    @get:JvmSynthetic", "    @set:JvmSynthetic", f"    var {name}: {kind}? = null", "")
            java, value = ("java.time.Duration", "value.toKotlinDuration()") if kind == "Duration" else (kind, "value")
            yield f"    /** Sets [{name}]. */"
            yield f"    fun {name}(value: {java}): {noun} = apply {{ {name} = {value} }}"
            yield ""


def kotlin_values(options):
    for option in options:
        for name in files(option):
            # a function's number is a parameter of the same name
            value = "?.toMs()" if option["type"] == "duration" else ""
            yield f"        {camel(uniffi_name(option, name))} = {camel(name)}{value},"


def uniffi_name(option, name):
    return f"{name}_ms" if option["type"] == "duration" else name


def uniffi_fields(options):
    for option in options:
        if option["type"] == "function":
            yield "/// The number of a function that the other language keeps."
        for name in files(option):
            yield f"pub {uniffi_name(option, name)}: Option<{UNIFFI_TYPES[option['type']][0]}>,"


def uniffi_setters(options, target, source, tried, indent):
    for option in options:
        name, kind = option["name"], option["type"]
        field = f"{source}.{uniffi_name(option, name)}"
        if kind == "certificate":
            cert, key = (f"{source}.{each}" for each in files(option))
            yield f"{indent}match ({cert}, {key}) {{"
            yield f"{indent}    (None, None) => {{}}"
            yield f"{indent}    (Some(cert), Some(key)) => {target} = {target}.{name}(cert, key),"
            yield f'{indent}    _ => return Err(NativeError::invalid({tried}, "cert_file and key_file belong together")),'
            yield f"{indent}}}"
            continue
        value, given = {
            "bytes": ("&value[..]", "value"), "duration": (f'span(ms, "{name}", {tried})?', "ms"),
            "count": (f'count(number, "{name}", {tried})?', "number"), "grade": ("value.into()", "value"),
            "notify": ("value.into()", "value"), "function": ("Provider(number)", "number"),
        }.get(kind, ("value", "value"))  # fmt: skip
        yield f"{indent}if let Some({given}) = {field} {{"
        yield f"{indent}    {target} = {target}.{name}({value});"
        yield f"{indent}}}"


# ---- Ruby -------------------------------------------------------------------------------------------------------------


def ruby_types(options):
    for option in options:
        yield f"      {option['name']}: :{option['type']},"


# ---- C and C++ --------------------------------------------------------------------------------------------------------


def c_parameters(option):
    """The parameters between the options and the error, and how their values are read into the option's name."""
    name, kind = option["name"], option["type"]
    tried = f'"set {name}"'
    if kind == "bytes":
        return (
            [f"{name}: *const c_char", f"{name}_length: usize"],
            f'let {name} = bytes({name}, {name}_length, "{name}", {tried})?.to_owned();',
        )
    if kind == "duration":
        return [f"{name}_ms: i64"], f'let {name} = duration({name}_ms, "{name}_ms", {tried})?;'
    if kind in {"grade", "notify"}:
        return [f"{name}: u32"], f"let {name} = enums::{kind}({name}, {tried})?;"
    if kind in {"text", "secret", "path", "certificate"}:
        names = files(option)
        reads = (f'let {each} = text({each}, "{each}", {tried})?.to_owned();' for each in names)
        return [f"{each}: *const c_char" for each in names], "\n".join(reads)
    return [f"{name}: {({'flag': 'bool', 'share': 'f64', 'count': 'u32'})[kind]}"], ""


def c_setters(options, noun):
    for option in options:
        name = option["name"]
        parameters, reads = c_parameters(option)
        borrowed = option["type"] in {"bytes", "text", "secret", "path", "certificate"}
        values = ", ".join(f"&{each}" if borrowed else each for each in files(option))
        if noun == "lock_options":
            change = f"move |settings| settings.{name} = Some({name})"
            first = sentence(option, "c")
            yield from (f"/// {line}" for line in textwrap.wrap(f"{first[0].upper()}{first[1:]}.", WIDTH - 4))
        else:
            change = f"move |builder| builder.{name}({values})"
            yield from comment(option, "c", 0)
        yield "#[unsafe(no_mangle)]"
        yield f"pub unsafe extern \"C\" fn onelock_{noun}_set_{name}("
        yield f"options: *mut onelock_{noun},"
        yield from (f"{parameter}," for parameter in parameters)
        yield "error: *mut *mut onelock_error,"
        yield ") -> onelock_status {"
        yield f'set(options, error, "set {name}", || {{ {reads}\nOk(Box::new({change})) }})'
        yield "}\n"


def c_fields(options):
    kinds = {"duration": "Duration", "flag": "bool"}
    for option in options:
        yield f"pub(crate) {option['name']}: Option<{kinds[option['type']]}>,"


def c_applied(options):
    for option in options:
        name = option["name"]
        yield f"        if let Some({name}) = settings.{name} {{"
        yield f"            lock = lock.{name}({name});"
        yield "        }"


def cpp_setters(options, noun):
    for option in options:
        name, kind = option["name"], option["type"]
        head, setter = f"    {noun} &{name}(", f"onelock_{noun}_set_{name}"
        if kind in {"bytes", "certificate"}:
            parameters, values = {
                "bytes": ("std::string_view value", "value.data(), value.size()"),
                "certificate": (
                    "const std::string &cert_file, const std::string &key_file", "cert_file.c_str(), key_file.c_str()",
                ),
            }[kind]  # fmt: skip
            yield f"{head}{parameters}) {{"
            yield "        detail::check([&](auto error) {"
            yield f"            return {setter}(get(), {values}, error);"
            yield "        });"
            yield "        return *this;"
            yield "    }"
            continue
        parameter, value = {
            "duration": ("milliseconds", "detail::ms(value)"), "flag": ("bool", "value"), "share": ("double", "value"),
            "count": ("std::uint32_t", "value"), "grade": ("grade", "static_cast<std::uint32_t>(value)"),
            "notify": ("onelock::notify", "static_cast<std::uint32_t>(value)"),
        }.get(kind, ("const std::string &", "value.c_str()"))  # fmt: skip
        space = "" if parameter.endswith("&") else " "
        head, body = f"{head}{parameter}{space}value) {{", f"return set({setter}, {value});"
        if len(f"{head} {body} }}") <= WIDTH:
            yield f"{head} {body} }}"
        else:
            yield from (head, f"        {body}", "    }")


def c_calls(options, noun):
    placeholders = {
        "bytes": "BYTES, LENGTH", "duration": "MS", "flag": "FLAG", "share": "REAL", "count": "NUMBER", "grade": "NUMBER",
        "notify": "NUMBER", "certificate": "STRING, STRING", "function": "ON_CREDENTIALS, DATA, ON_DESTROY",
    }  # fmt: skip
    for option in options:
        values = placeholders.get(option["type"], "STRING")
        yield f"STATUS(onelock_{noun}_set_{option['name']}(HANDLE(onelock_{noun}), {values}, ERR))"


# ---- where ------------------------------------------------------------------------------------------------------------

TABLES = {
    "README.md": {"| option |": readme_options(), "| address |": addresses(full=True)},
    "core/src/client.rs": {"| address |": addresses()},
    "bindings-python/python/onelock/client.py": {"| address |": addresses(), "| option |": python_options()},
    "bindings-node/README.md": {"| address |": addresses()},
    "bindings-node/ts/client.ts": {"| address |": addresses()},
    "bindings-ruby/README.md": {"| address |": addresses(), "| option |": ruby_options()},
}
BLOCKS = {
    "bindings-python/python/onelock/_types.py": {
        "client": python_types(on_client(by_hand=False)),
        "lock": python_types(on_lock()),
    },
    "bindings-python/src/client_options.rs": {
        "client": python_arms(OPTIONS, "builder"),
        "lock": python_arms(on_lock(), "lock"),
    },
    "bindings-node/ts/options.ts": {
        "lease": node_interface(on_lock()),
        "client": node_interface(own()),
        "checks of a lease": node_checks(on_lock()),
        "checks of a client": node_checks(own()),
    },
    "bindings-node/src/options.rs": {
        "client": node_fields(OPTIONS),
        "setters of a client": node_setters(OPTIONS, "builder", "ClientBuilder"),
        "lock": node_fields(on_lock()),
        "setters of a lock": node_setters(on_lock(), "lock", "Lock"),
    },
    "bindings-uniffi/src/options.rs": {
        "client": uniffi_fields(OPTIONS),
        "setters of a client": uniffi_setters(OPTIONS, "builder", "self", "CLIENT", ""),
        "lock": uniffi_fields(on_lock()),
        "setters of a lock": uniffi_setters(on_lock(), "lock", "options", "LOCK", " " * 8),
    },
    "bindings-ruby/lib/onelock/options.rb": {"client": ruby_types(OPTIONS), "lock": ruby_types(on_lock())},
    "bindings-uniffi/kotlin/src/Options.kt": {
        "client": kotlin_properties(OPTIONS, "ClientOptions"),
        "values of a client": kotlin_values(OPTIONS),
        "lock": kotlin_properties(on_lock(), "LockOptions"),
        "values of a lock": kotlin_values(on_lock()),
    },
    "bindings-c/src/client_setters.rs": {"client": c_setters(on_client(by_hand=False), "client_options")},
    "bindings-c/src/lock_setters.rs": {"lock": c_setters(on_lock(), "lock_options")},
    "bindings-c/src/lock_options.rs": {"fields": c_fields(on_lock()), "applied": c_applied(on_lock())},
    "bindings-c/include/onelock.hpp": {
        "lock": cpp_setters(on_lock(), "lock_options"),
        "client": cpp_setters(on_client(by_hand=False), "client_options"),
    },
    "bindings-c/tests/calls.h": {
        "client": c_calls(OPTIONS, "client_options"),
        "lock": c_calls(on_lock(), "lock_options"),
    },
}
# what is written by hand of an option whose value is a function
BY_HAND = {
    "bindings-python/python/onelock/_types.py": "    {name}: Callable",
    "bindings-node/src/bridge/clients.rs": "builder.{name}(provider)",
    "bindings-ruby/lib/onelock/credentials.rb": "client_options_set_{name}",
    "bindings-c/src/credentials.rs": "fn onelock_client_options_set_{name}(",
    "bindings-c/include/onelock.hpp": "client_options &{name}(",
}


SETTER = re.compile(r"((?: +///.*\n)+)(?: +#\[.*\n)* +pub fn (\w+)(?:<.*?>)?\(\s*mut self")


def setters(name):
    """The setters of a file of the core, each with its documentation."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return {setter: " ".join(doc.replace("///", " ").split()) for doc, setter in SETTER.findall(text)}


def check_core():
    """The builder has these options, and says these defaults and limits; a lock has those that it may set."""
    builder = setters("core/src/builder.rs")
    on_locks = setters("core/src/lock.rs")
    for where, present, wanted in [
        ("core/src/builder.rs", set(builder), NAMES),
        ("core/src/lock.rs", set(on_locks), {option["name"] for option in on_lock()} | set(SPEC["lock_only"]["names"])),
    ]:
        if present != wanted:
            sys.exit(f"{where} and the table differ: {', '.join(sorted(present ^ wanted))}")
    for option in OPTIONS:
        doc = builder[option["name"]]
        value = default(option, "rust")
        if option["type"] in {"grade", "notify"}:
            value = f"[`{option['type'].capitalize()}::{value[0].upper()}{value[1:]}`]"
        for words in (f"Default: {value}", limits(option)):
            if words.lower() not in doc.lower():
                sys.exit(f"core/src/builder.rs does not say of {option['name']}: {words}")


def with_table(text, head, rows, path):
    lines = text.split("\n")
    found = [number for number, line in enumerate(lines) if line.lstrip(" /*").startswith(head)]
    if len(found) != 1:
        sys.exit(f"{path} has {len(found)} tables that begin with {head}")
    begin = end = found[0]
    before = lines[begin][: lines[begin].index("|")]
    while lines[end].startswith(f"{before}|"):
        end += 1
    return "\n".join([*lines[:begin], *(f"{before}{row}" for row in rows), *lines[end:]])


def with_block(text, name, lines, path):
    place = re.compile(rf"(^[^\n]*written by tools/options\.py: {name}\b[^\n]*\n).*?(^[^\n]*end of {name}\b)", re.M | re.S)
    if len(place.findall(text)) != 1:
        sys.exit(f"{path} has no place for: {name}")
    block = "\n".join(lines).rstrip("\n")
    return place.sub(lambda match: f"{match[1]}{block}\n{match[2]}", text)


def formatted(text, path):
    if path.suffix != ".rs":
        return text
    words = ["rustfmt", "--edition", "2024", "--config-path", str(ROOT)]
    return subprocess.run(words, input=text, text=True, check=True, stdout=subprocess.PIPE).stdout


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    check_core()
    stale = []
    for name in sorted({*TABLES, *BLOCKS}):
        path = ROOT / name
        present = path.read_text(encoding="utf-8")
        text = present
        for head, rows in TABLES.get(name, {}).items():
            text = with_table(text, head, rows, name)
        for block, lines in BLOCKS.get(name, {}).items():
            text = with_block(text, block, lines, name)
        text = formatted(text, path)
        if text != present:
            stale.append(name)
            if not sys.argv[1:]:
                path.write_text(text, encoding="utf-8")
    for option in (option for option in OPTIONS if option["type"] == "function"):
        for name, wanted in BY_HAND.items():
            if wanted.format(name=option["name"]) not in (ROOT / name).read_text(encoding="utf-8"):
                sys.exit(f"{name} has no {option['name']}; its value is a function, so it is written by hand")
    if sys.argv[1:] and stale:
        sys.exit(f"not what tools/options.py writes: {', '.join(stale)}; run it and commit the result")


main()
