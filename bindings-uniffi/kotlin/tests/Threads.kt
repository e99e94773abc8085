package onelock.tests

import java.util.concurrent.atomic.AtomicReference
import kotlin.concurrent.thread
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds
import onelock.Cancel
import onelock.LockBusyException
import onelock.LockCancelledException
import onelock.LockNotAcquiredException
import onelock.LockNotHeldException
import onelock.LockTimeoutException
import onelock.Release

val threads: Map<String, () -> Unit> = mapOf(
    "one holder at a time" to {
        withClient { client ->
            val lock = client.lock(name())
            lock.acquireBlocking().use { lease ->
                check("it is held", lease.isHeld && lease.remaining > 20.seconds && lease.fencingToken!! > 0)
                same("a try", lock.tryAcquireBlocking(), null)
                val error = throws<LockTimeoutException>("a wait") { lock.acquireBlocking(30.milliseconds) }
                check("what it says", error is LockNotAcquiredException && error.isRetryable && lease.name in error.message!!)
            }
            val lease = lock.tryAcquireBlocking()!!
            lease.extendBlocking(60.seconds)
            check("extended", lease.remaining > 50.seconds)
            same("released", lease.releaseBlocking(), Release.RELEASED)
            same("released again", lease.releaseBlocking(), Release.ALREADY_RELEASED)
            check("not held any more", !lease.isHeld && lease.remaining.inWholeMilliseconds == 0L && lease.loss == null)
            throws<LockNotHeldException>("an extension") { lease.extendBlocking(60.seconds) }
        }
    },
    "a body's exception is thrown, and the lock is free" to {
        withClient { client ->
            val lock = client.lock(name())
            same("the result", lock.withLeaseBlocking { it.isHeld }, true)
            throws<IllegalStateException>("the body") { lock.withLeaseBlocking { error("the body failed") } }
            lock.tryAcquireBlocking()!!.close()
        }
    },
    "a body that fails after the loss has both, and nothing is held" to {
        withClient(onelock.clientOptions { ttl = 300.milliseconds }) { client ->
            val lock = client.lock(name())
            val lose = { lease: onelock.Lease ->
                client.forceReleaseBlocking(lease.name)
                check("lost", lease.waitLost(60.seconds) != null)
                error("the body failed")
            }
            val errors = listOf(
                throws<IllegalStateException>("the body") { lock.withLeaseBlocking { lose(it) } },
                throws<IllegalStateException>("the body") {
                    kotlinx.coroutines.runBlocking {
                        lock.withLease { kotlinx.coroutines.withContext(kotlinx.coroutines.NonCancellable) { lose(it) } }
                    }
                },
            )
            check("the loss", errors.all { it.suppressed.single() is onelock.LockLostException })
            eventually("nothing is held") { client.stats().held == 0L }
        }
    },
    "threads take turns" to {
        withClient { client ->
            val lock = client.lock(name())
            var inside = 0
            var counter = 0
            val workers = List(4) {
                thread {
                    repeat(50) {
                        lock.withLeaseBlocking {
                            inside += 1
                            check("alone", inside == 1)
                            counter += 1
                            inside -= 1
                        }
                    }
                }
            }
            workers.forEach(Thread::join)
            same("the counter", counter, 200)
        }
    },
    "an interrupted wait ends and holds nothing" to {
        withClient { client ->
            val lock = client.lock(name())
            val holder = lock.acquireBlocking()
            val ended = AtomicReference<Throwable>()
            val waiter = thread {
                try {
                    lock.acquireBlocking()
                } catch (error: Throwable) {
                    ended.set(error)
                }
            }
            eventually("it waits") { client.stats().waiting == 1L }
            waiter.interrupt()
            waiter.join()
            check("${ended.get()}", ended.get() is InterruptedException)
            holder.close()
            // the same thread may wait again, and one that is interrupted before does not begin to
            thread {
                Thread.currentThread().interrupt()
                throws<InterruptedException>("interrupted before") { lock.acquireBlocking() }
                check("the flag is cleared", !Thread.currentThread().isInterrupted)
                lock.acquireBlocking().close()
            }.join()
            eventually("nothing is held") { client.stats().held == 0L }
        }
    },
    "a cancel object ends waits, those to come too" to {
        withClient { client ->
            val lock = client.lock(name())
            val cancel = Cancel()
            val holder = lock.acquireBlocking(cancel = cancel)
            val ended = AtomicReference<Throwable>()
            val waiter = thread { ended.set(runCatching { lock.acquireBlocking(5.seconds, cancel) }.exceptionOrNull()) }
            eventually("it waits") { client.stats().waiting == 1L }
            cancel.cancel()
            waiter.join()
            check("${ended.get()}", ended.get() is LockCancelledException)
            throws<LockCancelledException>("a later wait") { lock.acquireBlocking(cancel = cancel) }
            check("the lease is not concerned", holder.isHeld)
            holder.extendBlocking(60.seconds)
            holder.close()
            lock.acquireBlocking().close()
        }
    },
    "a try that is refused is no exception; a wait of zero is" to {
        withClient { client ->
            val lock = client.lock(name())
            lock.acquireBlocking().use {
                same("a try", lock.tryAcquireBlocking(), null)
                val error = throws<LockNotAcquiredException>("zero") { lock.acquireBlocking(0.seconds) }
                check("$error", error is LockBusyException || error is LockTimeoutException)
            }
        }
    },
)
