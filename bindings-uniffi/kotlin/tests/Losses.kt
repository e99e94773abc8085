package onelock.tests

import java.util.concurrent.CompletableFuture
import java.util.concurrent.ConcurrentLinkedQueue
import java.util.concurrent.TimeUnit
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds
import kotlinx.coroutines.delay
import kotlinx.coroutines.runBlocking
import onelock.ClientOptions
import onelock.LockLostException
import onelock.LossReason
import onelock.Release
import onelock.clientOptions
import onelock.lockOptions

/** A third of it is the renewal period, at which a loss is found. */
private val short: ClientOptions get() = clientOptions { ttl = 600.milliseconds }

val losses: Map<String, () -> Unit> = mapOf(
    "callbacks run on one daemon thread that is kept" to {
        withClient(short) { client ->
            val threads = ConcurrentLinkedQueue<Thread>()
            repeat(2) {
                val name = name()
                val lease = client.lock(name).acquireBlocking()
                val told = CompletableFuture<LossReason>()
                lease.onLost { error("a callback that throws harms nobody") }
                lease.onLost { reason ->
                    threads += Thread.currentThread()
                    told.complete(reason)
                }
                same("no loss yet", lease.waitLost(1.milliseconds), null)
                check("released by force", client.forceReleaseBlocking(name))
                same("the reason", told.get(60, TimeUnit.SECONDS), LossReason.TAKEN)
                same("the future", lease.lostFuture().get(60, TimeUnit.SECONDS), LossReason.TAKEN)
                same("the look", lease.loss, LossReason.TAKEN)
                check("not held", !lease.isHeld)
                same("the exception", throws<LockLostException>("the check") { lease.throwIfLost() }.reason, LossReason.TAKEN)
                // one that comes late is called at once
                val late = CompletableFuture<LossReason>()
                lease.onLost(late::complete)
                same("late", late.get(60, TimeUnit.SECONDS), LossReason.TAKEN)
            }
            same("one thread", threads.toSet().size, 1)
            check("a daemon", threads.first().isDaemon && threads.first().name == "onelock-callbacks")
        }
    },
    "a loss ends the body of a scope" to {
        withClient(short) { client ->
            val name = name()
            runBlocking {
                val lost = throws<LockLostException>("the scope") {
                    client.lock(name).withLease {
                        client.forceRelease(name)
                        delay(60.seconds)
                    }
                }
                same("the reason", lost.reason, LossReason.TAKEN)
                throws<LockLostException>("a body that ends well") {
                    client.lock(name).withLease { lease ->
                        client.forceRelease(name)
                        runCatching { kotlinx.coroutines.withContext(kotlinx.coroutines.NonCancellable) { lease.lost() } }
                    }
                }
            }
        }
    },
    "options of a lock have callbacks for each of its leases" to {
        val told = CompletableFuture<LossReason>()
        val client = onelock.Client(url)
        client.lock(name(), lockOptions { onLost = onelock.LossCallback(told::complete) }).acquireBlocking()
        client.close()
        same("the reason", told.get(60, TimeUnit.SECONDS), LossReason.CLOSED)
    },
    "of several locks the callbacks of each are called" to {
        val told = ConcurrentLinkedQueue<String>()
        val options = { who: String -> lockOptions { onLost = onelock.LossCallback { told += who } } }
        val shared = options("shared")
        val client = onelock.Client(url)
        val locks = listOf(shared, shared, options("own"), null).map { client.lock(name(), it) }
        val lease = onelock.Lock.of(locks).acquireBlocking()
        val last = CompletableFuture<LossReason>()
        lease.onLost(last::complete)
        client.close()
        // callbacks are called in their order
        same("the reason", last.get(60, TimeUnit.SECONDS), LossReason.CLOSED)
        same("told", told.toList(), listOf("shared", "shared", "own"))
    },
    "what waits on the future of a loss delays no other loss" to {
        withClient(short) { client ->
            val stuck = client.lock(name()).acquireBlocking()
            val leave = java.util.concurrent.CountDownLatch(1)
            val inside = java.util.concurrent.CountDownLatch(1)
            stuck.lostFuture().thenRun {
                inside.countDown()
                leave.await()
            }
            try {
                client.forceReleaseBlocking(stuck.name)
                check("it is told", inside.await(60, TimeUnit.SECONDS))
                runBlocking {
                    throws<LockLostException>("a scope") {
                        client.lock(name()).withLease { held ->
                            client.forceRelease(held.name)
                            delay(60.seconds)
                            error("it was not cancelled")
                        }
                    }
                }
            } finally {
                leave.countDown()
            }
        }
    },
    "a logger that throws does not end the telling of losses" to {
        withClient(short) { client ->
            val thrown = java.util.concurrent.atomic.AtomicInteger()
            val log = java.util.logging.Logger.getLogger("onelock")
            val handler = object : java.util.logging.Handler() {
                override fun publish(record: java.util.logging.LogRecord) {
                    thrown.incrementAndGet()
                    throw object : RuntimeException("a logger that fails harms nobody", null, false, false) {}
                }
                override fun flush() = Unit
                override fun close() = Unit
            }
            log.addHandler(handler)
            log.useParentHandlers = false
            try {
                forget(client.lock(name()))
                eventually("it was logged") {
                    System.gc()
                    thrown.get() > 0
                }
                val lease = client.lock(name()).acquireBlocking()
                client.forceReleaseBlocking(lease.name)
                same("the future", lease.lostFuture().get(60, TimeUnit.SECONDS), LossReason.TAKEN)
                val late = CompletableFuture<LossReason>()
                lease.onLost(late::complete)
                same("callbacks", late.get(60, TimeUnit.SECONDS), LossReason.TAKEN)
            } finally {
                log.removeHandler(handler)
                log.useParentHandlers = true
            }
        }
    },
    "max_hold ends a lease" to {
        withClient { client ->
            val lease = client.lock(name(), lockOptions { maxHold = 100.milliseconds }).acquireBlocking()
            same("the reason", lease.waitLost(60.seconds), LossReason.MAX_HOLD)
            check("what the release found", lease.releaseBlocking() != Release.ALREADY_RELEASED)
        }
    },
)
