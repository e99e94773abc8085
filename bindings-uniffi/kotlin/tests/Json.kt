package onelock.tests

/** As much of JSON as the drivers' lines need: maps, lists, texts, numbers, booleans and null. */
object Json {
    fun write(value: Any?): String = when (value) {
        null, is Number, is Boolean -> value.toString()
        is Map<*, *> -> value.entries.joinToString(",", "{", "}") { (key, item) -> "${text(key.toString())}:${write(item)}" }
        is Iterable<*> -> value.joinToString(",", "[", "]", transform = ::write)
        else -> text(value.toString())
    }

    private fun text(value: String): String = buildString {
        append('"')
        for (char in value) {
            if (char == '"' || char == '\\') append('\\').append(char)
            else if (char < ' ') append("\\u%04x".format(char.code))
            else append(char)
        }
        append('"')
    }

    fun read(text: String): Any? = Reader(text).run { value().also { check(at == text.length) { "more than one value: $text" } } }

    private class Reader(val text: String) {
        var at = 0

        private fun blank() {
            while (at < text.length && text[at].isWhitespace()) at += 1
        }

        private fun take(char: Char): Boolean {
            blank()
            return (at < text.length && text[at] == char).also { if (it) at += 1 }
        }

        private fun word(word: String, value: Any?): Any? {
            check(text.startsWith(word, at)) { "no JSON at $at: $text" }
            at += word.length
            return value
        }

        fun value(): Any? {
            blank()
            return when (text[at]) {
                '{' -> members()
                '[' -> items()
                '"' -> string()
                't' -> word("true", true)
                'f' -> word("false", false)
                'n' -> word("null", null)
                else -> number()
            }.also { blank() }
        }

        private fun members(): Map<String, Any?> = LinkedHashMap<String, Any?>().also { found ->
            take('{')
            if (take('}')) return@also
            do {
                blank()
                val key = string()
                check(take(':')) { "no JSON at $at: $text" }
                found[key] = value()
            } while (take(','))
            check(take('}')) { "no JSON at $at: $text" }
        }

        private fun items(): List<Any?> = ArrayList<Any?>().also { found ->
            take('[')
            if (take(']')) return@also
            do found += value() while (take(','))
            check(take(']')) { "no JSON at $at: $text" }
        }

        private fun string(): String = buildString {
            check(text[at] == '"') { "no JSON at $at: $text" }
            at += 1
            while (text[at] != '"') {
                var char = text[at++]
                if (char == '\\') {
                    char = when (val escaped = text[at++]) {
                        'n' -> '\n'
                        'r' -> '\r'
                        't' -> '\t'
                        'b' -> '\b'
                        'f' -> '\u000c'
                        'u' -> text.substring(at, at + 4).toInt(16).toChar().also { at += 4 }
                        else -> escaped
                    }
                }
                append(char)
            }
            at += 1
        }

        private fun number(): Number {
            val begun = at
            while (at < text.length && text[at] in "+-.eE0123456789") at += 1
            val digits = text.substring(begun, at)
            return digits.toLongOrNull() ?: digits.toDouble()
        }
    }
}
