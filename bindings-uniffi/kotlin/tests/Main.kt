package onelock.tests

import java.util.logging.Logger
import kotlin.system.exitProcess

private val log = Logger.getLogger("onelock")

/** Runs the tests whose names contain all words that are given, and says how many. */
fun main(words: Array<String>) {
    // one test has it logged
    log.setFilter { it.thrown?.message?.contains("harms nobody") != true }
    val tests = listOf(threads, coroutines, losses, memory, surface).flatMap { it.toList() }
    val wanted = tests.filter { (name, _) -> words.all(name::contains) }
    var failed = 0
    for ((name, test) in wanted) {
        val begun = System.nanoTime()
        val error = try {
            test()
            null
        } catch (error: Throwable) {
            error
        }
        println("test $name ... ${if (error == null) "ok" else "FAILED"} (${(System.nanoTime() - begun) / 1_000_000} ms)")
        if (error != null) {
            failed += 1
            error.printStackTrace(System.out)
        }
    }
    println("kotlin: ${wanted.size - failed} passed, $failed failed")
    exitProcess(if (failed > 0 || wanted.isEmpty()) 1 else 0)
}
