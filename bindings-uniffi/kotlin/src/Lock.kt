package onelock

import java.util.concurrent.atomic.AtomicLong
import kotlin.time.Duration
import kotlin.time.toKotlinDuration
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.Job
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.cancel
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.launch
import kotlinx.coroutines.withContext

/**
 * A lock by name, or several as one ([Client.multiLock], [Lock.of]): a description that holds nothing. Any number of threads and
 * coroutines may use it.
 *
 * What suspends may be cancelled at any moment and then holds nothing. What ends in `Blocking` waits on its thread, may be
 * interrupted, and in Java is called without that word.
 *
 * ```
 * lock.withLease(wait = 5.seconds) { lease -> charge(order, fence = lease.fencingToken) }
 * ```
 */
class Lock internal constructor(internal val native: NativeLock, private val options: List<LockOptions>) {
    /** Throws [InvalidArgumentException] or [UnsupportedException] when name or options are not valid. No I/O. */
    fun validate() = calling { native.validate() }

    /**
     * Suspends until the lock is held, for ever or for [wait] at most: then [LockTimeoutException]. Cancelling the coroutine
     * leaves nothing held.
     */
    @JvmSynthetic
    suspend fun acquire(wait: Duration? = null): Lease {
        return checkNotNull(granted { native.acquire(wait.toWaitMs(), it) })
    }

    /** Takes the lock if it is free; else null. */
    @JvmSynthetic
    suspend fun tryAcquire(): Lease? = granted(native::tryAcquire)

    /** Fetches what [call] was granted under the number that it is given; after an end without it nothing is held. */
    private suspend inline fun granted(crossinline call: suspend (Long) -> Unit): Lease? {
        Events.start()
        val number = NUMBERS.incrementAndGet()
        try {
            calling { call(number) }
        } catch (error: Throwable) {
            forgetGranted(number)
            throw error
        }
        return takeGranted(number)?.let { Lease(it, options).guardedBy(currentCoroutineContext()[Job]) }
    }

    /**
     * Waits on this thread until the lock is held, for ever or for [wait] at most: then [LockTimeoutException]. Ends with
     * `InterruptedException` when the thread is interrupted, and with [LockCancelledException] by [cancel].
     */
    @JvmSynthetic
    fun acquireBlocking(wait: Duration? = null, cancel: Cancel? = null): Lease =
        leaseOf { Interruption.during(cancel) { calling { native.acquireBlocking(wait.toWaitMs(), it) } } }!!

    /** The same for Java. */
    @JvmName("acquire")
    @JvmOverloads
    @Throws(InterruptedException::class)
    fun acquireBlocking(wait: java.time.Duration, cancel: Cancel? = null): Lease = acquireBlocking(wait.toKotlinDuration(), cancel)

    /** The same for Java, without a limit. */
    @JvmName("acquire")
    @JvmOverloads
    @Throws(InterruptedException::class)
    fun acquireForever(cancel: Cancel? = null): Lease = acquireBlocking(null as Duration?, cancel)

    /** Takes the lock if it is free; else null. */
    @JvmName("tryAcquire")
    fun tryAcquireBlocking(): Lease? = leaseOf { calling { native.tryAcquireBlocking() } }

    private inline fun leaseOf(grant: () -> NativeLease?): Lease? {
        Events.start()
        return grant()?.let { Lease(it, options) }
    }

    /**
     * Runs [body] with the lock held, and releases it. The body is cancelled when the lease is lost; then, and when it was lost
     * though the body ended well, this throws [LockLostException]. What the body throws is thrown.
     */
    @JvmSynthetic
    suspend fun <T> withLease(wait: Duration? = null, body: suspend (Lease) -> T): T {
        val lease = acquire(wait)
        var lost = false
        val result = try {
            coroutineScope {
                // on a thread that may run what the cancellation resumes, whatever the body's dispatcher is
                val watcher = launch(Dispatchers.Default, CoroutineStart.UNDISPATCHED) {
                    lease.lostAtOnce()
                    lost = true
                    this@coroutineScope.cancel("the lease was lost")
                }
                body(lease).also { watcher.cancel() }
            }
        } catch (error: Throwable) {
            var loss: LockLostException? = null
            error.over { loss = lossOf(lease) }
            error.over { withContext(NonCancellable) { lease.release() } }
            val found = loss ?: throw error
            if (lost && error is CancellationException && currentCoroutineContext()[Job]?.isCancelled != true) throw found
            throw error.also { it.addSuppressed(found) }
        }
        val loss = try {
            lossOf(lease)
        } finally {
            withContext(NonCancellable) { lease.release() }
        }
        (loss ?: lossOf(lease))?.let { throw it }
        return result
    }

    /** The same on this thread; the body is not interrupted by a loss: look at [Lease.isHeld]. */
    @JvmSynthetic
    fun <T> withLeaseBlocking(wait: Duration? = null, body: (Lease) -> T): T {
        val lease = acquireBlocking(wait)
        val result = try {
            body(lease)
        } catch (error: Throwable) {
            error.over { lossOf(lease)?.let(error::addSuppressed) }
            error.over { lease.releaseBlocking() }
            throw error
        }
        lease.releaseBlocking()
        lossOf(lease)?.let { throw it }
        return result
    }

    /** What fails after this error does not hide it, nor what comes then. */
    private inline fun Throwable.over(next: () -> Unit) {
        try {
            next()
        } catch (later: Throwable) {
            if (later !== this) addSuppressed(later)
        }
    }

    private fun lossOf(lease: Lease): LockLostException? = try {
        lease.throwIfLost()
        null
    } catch (error: LockLostException) {
        error
    }

    /** Continues a hold that was handed away: [proof] is what [Lease.detach] returned. */
    @JvmSynthetic
    suspend fun attach(proof: String): Lease {
        return checkNotNull(granted { native.attach(proof, it) })
    }

    /** The same on this thread. */
    @JvmName("attach")
    fun attachBlocking(proof: String): Lease = leaseOf { calling { native.attachBlocking(proof) } }!!

    /** Whether somebody holds it. */
    @JvmSynthetic
    suspend fun isLocked(): Boolean = calling { native.isLocked() }

    /** The same on this thread. */
    @JvmName("isLocked")
    fun isLockedBlocking(): Boolean = calling { native.isLockedBlocking() }

    /** The same semaphore, of which each acquire takes so many permits, all or none. */
    fun taking(permits: Int): Lock = Lock(calling { native.taking(permits) }, options)

    /** The permits of a semaphore; null when none are set. */
    @JvmSynthetic
    suspend fun permits(): Permits? = calling { native.permits() }

    /** The same on this thread. */
    @JvmName("permits")
    fun permitsBlocking(): Permits? = calling { native.permitsBlocking() }

    /** Changes how many permits a semaphore has. */
    @JvmSynthetic
    suspend fun setPermits(total: Int): Permits = calling { native.setPermits(total) }

    /** The same on this thread. */
    @JvmName("setPermits")
    fun setPermitsBlocking(total: Int): Permits = calling { native.setPermitsBlocking(total) }

    companion object {
        private val NUMBERS = AtomicLong()

        /**
         * Several locks as one, all or none, of any kinds and clients; the lease is lost when one of them is. The callbacks in the
         * options of each of them are called, [LockOptions.onLost] and [LockOptions.onJeopardy].
         */
        @JvmStatic
        fun of(locks: Collection<Lock>): Lock =
            Lock(calling { NativeLock.several(locks.map { it.native }) }, locks.flatMap { it.options })

        /** The same. */
        @JvmStatic
        fun of(vararg locks: Lock): Lock = of(locks.asList())
    }
}

/** The two sides of a read/write lock: many readers at a time, or one writer. */
class RwLock internal constructor(
    /** The reading side. */
    val read: Lock,
    /** The writing side. */
    val write: Lock,
)
