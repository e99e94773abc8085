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
