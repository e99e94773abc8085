package onelock.tests

import java.util.concurrent.TimeUnit
import java.util.logging.Handler
import java.util.logging.LogRecord
import java.util.logging.Logger
import onelock.Client
import onelock.Lock

/** In a frame of its own, so that nothing refers to the lease afterwards. */
internal fun forget(lock: Lock) = check("held", lock.acquireBlocking().isHeld)

val memory: Map<String, () -> Unit> = mapOf(
    "a lease that is collected is given back, with a warning" to {
        withClient { client ->
            val warnings = java.util.concurrent.ConcurrentLinkedQueue<String>()
            val log = Logger.getLogger("onelock")
            val handler = object : Handler() {
                override fun publish(record: LogRecord) = run { warnings += record.message }
                override fun flush() = Unit
                override fun close() = Unit
            }
            log.addHandler(handler)
            log.useParentHandlers = false
            try {
                val name = name()
                forget(client.lock(name))
                eventually("it was collected") {
                    System.gc()
                    client.stats().held == 0L
                }
                client.lock(name).acquireBlocking().close()
                eventually("the warning") { warnings.any { name in it } }
            } finally {
                log.removeHandler(handler)
                log.useParentHandlers = true
            }
        }
    },
    "a lease stays while it is referred to" to {
        withClient { client ->
            val lease = client.lock(name()).acquireBlocking()
            lease.onLost {}
            repeat(3) { System.gc() }
            check("held", lease.isHeld)
            lease.close()
        }
    },
    "the end of a process releases what it holds, and nothing keeps it alive" to {
        val name = name()
        val java = "${System.getProperty("java.home")}/bin/java"
        val program = listOf(java, "-cp", System.getProperty("java.class.path"), "onelock.tests.EndsWhileHoldingKt", name)
        val process = ProcessBuilder(program).redirectError(ProcessBuilder.Redirect.INHERIT).start()
        check("it ends", process.waitFor(60, TimeUnit.SECONDS))
        same("its status", process.exitValue(), 0)
        same("it held", process.inputReader().readLine(), "true")
        withClient { client -> check("free at once", client.inspectBlocking(name) == null) }
    },
)
