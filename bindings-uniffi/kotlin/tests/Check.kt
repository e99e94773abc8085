package onelock.tests

import java.util.concurrent.atomic.AtomicInteger
import onelock.Client
import onelock.ClientOptions

/** The address of the server that the tests have to themselves. */
val url: String = System.getenv("ONELOCK_URL") ?: error("ONELOCK_URL is not set")

private val names = AtomicInteger()

/** A name that no other test has. */
fun name(): String = "kotlin-${ProcessHandle.current().pid()}-${names.incrementAndGet()}"

/** Runs with a client of its own. */
fun <T> withClient(options: ClientOptions = ClientOptions(), body: (Client) -> T): T =
    Client.connectBlocking(url, options).use(body)

fun check(what: String, condition: Boolean) {
    if (!condition) throw AssertionError(what)
}

fun <T> same(what: String, found: T, expected: T) {
    if (found != expected) throw AssertionError("$what: found $found, expected $expected")
}

inline fun <reified E : Throwable> throws(what: String, body: () -> Any?): E {
    val result = try {
        body()
    } catch (error: Throwable) {
        if (error is E) return error
        throw AssertionError("$what: expected ${E::class.java.simpleName}, found $error", error)
    }
    throw AssertionError("$what: expected ${E::class.java.simpleName}, and it returned $result")
}

/** Waits for a condition, a minute at most. */
fun eventually(what: String, condition: () -> Boolean) {
    val until = System.nanoTime() + 60_000_000_000
    while (!condition()) {
        if (System.nanoTime() > until) throw AssertionError("never: $what")
        Thread.sleep(5)
    }
}

/** Asks the server something whose answer is a bulk text. */
fun redis(vararg words: String): String = java.net.URI(url).let { java.net.Socket(it.host, it.port) }.use { socket ->
    val request = words.joinToString("", "*${words.size}\r\n") { "$${it.length}\r\n$it\r\n" }
    socket.getOutputStream().write(request.toByteArray())
    val input = java.io.DataInputStream(socket.getInputStream())
    @Suppress("DEPRECATION")
    ByteArray(input.readLine().drop(1).toInt()).also(input::readFully).decodeToString()
}
