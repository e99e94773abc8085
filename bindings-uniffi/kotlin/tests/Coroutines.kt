package onelock.tests

import java.util.concurrent.CompletableFuture
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.Job
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.delay
import kotlinx.coroutines.future.await
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withContext
import kotlinx.coroutines.withTimeoutOrNull
import kotlinx.coroutines.yield
import onelock.LockNotHeldException
import onelock.LockTimeoutException
import onelock.Release

val coroutines: Map<String, () -> Unit> = mapOf(
    "coroutines on one thread take turns" to {
        withClient { client ->
            val lock = client.lock(name())
            var inside = 0
            var counter = 0
            runBlocking {
                coroutineScope {
                    repeat(8) {
                        launch {
                            repeat(20) {
                                lock.withLease {
                                    inside += 1
                                    check("alone", inside == 1)
                                    delay(0.1.milliseconds)
                                    counter += 1
                                    inside -= 1
                                }
                            }
                        }
                    }
                }
            }
            same("the counter", counter, 160)
            same("held", client.stats().held, 0L)
        }
    },
    "threads and coroutines take turns" to {
        withClient { client ->
            val lock = client.lock(name())
            var counter = 0
            runBlocking(Dispatchers.Default) {
                repeat(4) { number ->
                    // what blocks belongs on threads that may be blocked
                    launch(if (number % 2 == 0) Dispatchers.Default else Dispatchers.IO) {
                        repeat(40) { if (number % 2 == 0) lock.withLease { counter += 1 } else lock.withLeaseBlocking { counter += 1 } }
                    }
                }
            }
            same("the counter", counter, 160)
        }
    },
    "a cancelled acquire waits no more and holds nothing" to {
        withClient { client ->
            val lock = client.lock(name())
            runBlocking {
                val holder = lock.acquire()
                val waiter = launch(Dispatchers.Default) { lock.acquire() }
                eventually("it waits") { client.stats().waiting == 1L }
                waiter.cancelAndJoin()
                eventually("nobody waits") { client.stats().waiting == 0L }
                throws<LockTimeoutException>("a wait") { lock.acquire(20.milliseconds) }
                same("released", holder.release(), Release.RELEASED)
            }
            lock.tryAcquireBlocking()!!.close()
        }
    },
    "cancellations and time-outs that race grants leave nothing held" to {
        withClient { client ->
            val lock = client.lock(name())
            var got = 0
            var cancelled = 0
            // so long that it goes either way, on any machine
            var limit = 500_000L
            runBlocking(Dispatchers.Default) {
                while (got < 100 || cancelled < 100) {
                    val until = System.nanoTime() + limit
                    val acquire = async { lock.acquire() }
                    while (System.nanoTime() < until) Thread.onSpinWait()
                    acquire.cancel()
                    try {
                        acquire.await().release()
                        got += 1
                        limit = limit * 9 / 10
                    } catch (_: CancellationException) {
                        cancelled += 1
                        limit = limit * 11 / 10 + 1_000
                    }
                    check("it goes either way", got + cancelled < 20_000)
                }
                repeat(200) { round -> withTimeoutOrNull((round % 4).milliseconds) { lock.acquire() }?.release() }
            }
            // without the help of the garbage collector
            eventually("nothing is held") { client.stats().run { held + waiting + cleaning } == 0L }
            lock.tryAcquireBlocking()!!.close()
        }
    },
    "a lease that a coroutine looked at stays when the coroutine is cancelled" to {
        withClient { client ->
            val lock = client.lock(name())
            runBlocking {
                var kept: onelock.Lease? = null
                val job = launch {
                    kept = lock.acquire().also { check("held", it.isHeld) }
                    delay(60.seconds)
                }
                while (kept == null) delay(1.milliseconds)
                job.cancelAndJoin()
                check("still held", kept!!.isHeld)
                same("released", kept!!.release(), Release.RELEASED)
            }
        }
    },
    "a lease that is lost on its way out of withContext is given back" to {
        withClient { client ->
            val lock = client.lock(name())
            runBlocking {
                val job = launch {
                    val outer = currentCoroutineContext()[Job]!!
                    withContext(Dispatchers.IO) {
                        // the inner job has ended well then, and its result is not delivered
                        currentCoroutineContext()[Job]!!.invokeOnCompletion { outer.cancel() }
                        lock.acquire()
                    }
                }
                job.join()
                check("cancelled", job.isCancelled)
            }
            // without the help of the garbage collector
            eventually("nothing is held") { client.stats().run { held + waiting + cleaning } == 0L }
        }
    },
    "whoever gets a lease that was given back is told at the first look" to {
        withClient { client ->
            val sent = CompletableFuture<onelock.Lease>()
            runBlocking {
                val producer = launch {
                    sent.complete(client.lock(name()).acquire())
                    awaitCancellation()
                }
                val lease = sent.await()
                producer.cancelAndJoin()
                val error = throws<LockNotHeldException>("the fencing token") { lease.fencingToken }
                check("$error", lease.name in error.message!! && "cancelled" in error.message!!)
                check("not held", !lease.isHeld && lease.loss == null && "held=false" in lease.toString())
                throws<LockNotHeldException>("an extension") { lease.extend(60.seconds) }
                throws<LockNotHeldException>("a callback") { lease.onLost {} }
                throws<LockNotHeldException>("a wait for the loss") { lease.lost() }
                lease.close()
            }
            eventually("nothing is held") { client.stats().run { held + waiting + cleaning } == 0L }
        }
    },
    "a lease that nobody looked at is collected while its coroutine goes on" to {
        withClient { client ->
            runBlocking {
                same("taken", client.lock(name()).tryAcquire() != null, true)
                same("taken inside", withContext(Dispatchers.IO) { client.lock(name()).tryAcquire() } != null, true)
                // what resumed this coroutine has the result on its stack
                yield()
                eventually("it was collected") {
                    System.gc()
                    client.stats().held == 0L
                }
            }
        }
    },
    "each form releases a lease of the other" to {
        withClient { client ->
            val lock = client.lock(name())
            runBlocking {
                same("of a thread", lock.acquireBlocking().release(), Release.RELEASED)
                same("of a coroutine", lock.acquire().releaseBlocking(), Release.RELEASED)
                lock.acquireBlocking().use { it.extend(60.seconds) }
                lock.tryAcquire()!!.use { it.extendBlocking(60.seconds) }
            }
        }
    },
    "a scope releases when its coroutine is cancelled" to {
        withClient { client ->
            val lock = client.lock(name())
            runBlocking {
                val inside = kotlinx.coroutines.CompletableDeferred<Unit>()
                val job = launch {
                    lock.withLease {
                        inside.complete(Unit)
                        delay(60.seconds)
                    }
                }
                inside.await()
                job.cancelAndJoin()
                same("held", client.stats().held, 0L)
                throws<CancellationException>("a body that cancels itself") { lock.withLease { throw CancellationException("mine") } }
                throws<IllegalStateException>("a body that fails") { lock.withLease { error("the body failed") } }
                same("a result", lock.withLease { 7 }, 7)
            }
        }
    },
)
