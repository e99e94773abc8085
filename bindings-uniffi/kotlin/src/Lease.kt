package onelock

import java.util.concurrent.TimeUnit
import java.util.concurrent.TimeoutException
import java.util.concurrent.CompletableFuture
import kotlin.time.Duration
import kotlin.time.Duration.Companion.microseconds
import kotlin.time.toJavaDuration
import kotlin.time.toKotlinDuration
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.Job
import kotlinx.coroutines.future.await
import kotlinx.coroutines.withContext

/**
 * One granted hold of a lock, from [Lock.acquire]. Any thread and any coroutine may use and release it.
 *
 * It is renewed in the background until it is released or lost. [isHeld] is always correct; callbacks may come late. A lease
 * that is collected without a release is given back in the background, with a warning: `use`, [Lock.withLease] or [release]
 * are faster, and certain.
 *
 * A lease whose coroutine was cancelled before anybody looked at the lease is given back. Whoever got it nevertheless, through a
 * channel say, finds [isHeld] false, and what only a holder may have ([fencingToken], [extend], [lost] ...) throws
 * [LockNotHeldException].
 */
class Lease internal constructor(private val handle: NativeLease, options: List<LockOptions>) : AutoCloseable {
    private val listeners = Listeners()
    private val watching = lazy { Events.watch(handle, listeners) }

    @Volatile
    private var guard: Guard? = null

    /** For what tells the truth of a lease that holds nothing, too. */
    private val looked: NativeLease
        get() {
            guard?.look()
            return handle
        }

    /** For what only a holder may have. */
    private val native: NativeLease get() = looked.also { if (guard?.isGivenBack == true) throw givenBack() }

    init {
        options.forEach { each ->
            each.onLost?.let(::onLost)
            each.onJeopardy?.let(::onJeopardy)
        }
    }

    /** The name that is locked; of several the first. Bytes that are no UTF-8 are replaced. */
    val name: String get() = nameBytes.decodeToString()

    /** The same as it was given. */
    val nameBytes: ByteArray get() = looked.name()

    /** The names of the locks that are held together. */
    val names: List<String> get() = looked.names().map(ByteArray::decodeToString)

    /** The kind of lock; of several that of the first. */
    val kind: Kind get() = looked.kind()

    /** A number that grows with every grant of the name: give it to what the lock protects. Null without fencing. */
    val fencingToken: Long? get() = native.fencingToken().takeIf { it >= 0 }

    /** The fencing token of one of the locks that this lease holds together. */
    fun fencingTokenOf(name: String): Long? = native.fencingTokenOf(name.encodeToByteArray()).takeIf { it >= 0 }

    /** How strong the fencing token is, from the server's configuration. */
    val fencingGrade: Grade get() = native.fencingGrade()

    /** Whether it holds the lock right now: not released, not lost, deadline ahead. No I/O. */
    val isHeld: Boolean get() = looked.isHeld()

    /** What is left until the deadline if nothing more is renewed; zero when it is not held. No I/O. */
    @get:JvmSynthetic
    val remaining: Duration get() = looked.remainingUs().microseconds

    /** [remaining] for Java. */
    @JvmName("getRemaining")
    fun remainingTime(): java.time.Duration = remaining.toJavaDuration()

    /** Why the lease was lost; null while it is held, and after a release. No I/O. */
    val loss: LossReason? get() = looked.loss()

    /** How often the owner has entered; 0 when it is not held. */
    val holdCount: Long get() = looked.holdCount()

    /** The proof of this hold, as it stands on the server. It is a secret: whoever has it can release the lock. */
    val token: String get() = native.token()

    /**
     * Calls back once when the lease is lost; at once if it is lost already, and never when it is released. Callbacks run one after
     * the other on a daemon thread that is kept for them, so keep them short. What they throw is logged.
     */
    fun onLost(callback: LossCallback) {
        native
        watching.value
        listeners.addLost(callback)
    }

    /** Calls back for each renewal that was missed while the lease is still valid: an early sign. On the same thread. */
    fun onJeopardy(callback: Runnable) {
        native
        listeners.addJeopardy(callback)
        watching.value
    }

    /** Completes when the lease is lost, and never when it is released. A copy: completing it changes nothing. */
    fun lostFuture(): CompletableFuture<LossReason> {
        native
        watching.value
        return listeners.lostFuture()
    }

    /** Suspends until the lease is lost. For ever when it is released instead. */
    @JvmSynthetic
    suspend fun lost(): LossReason = lostFuture().await()

    /** The same, without the program's callbacks before it. What goes on after it must not run on the thread that tells. */
    internal suspend fun lostAtOnce(): LossReason {
        native
        watching.value
        return listeners.lost.copy().await()
    }

    /** Waits for the loss, at most [limit]; null when it has not been lost by then. */
    @JvmSynthetic
    fun waitLost(limit: Duration): LossReason? = try {
        native
        watching.value
        listeners.lost.get(limit.inWholeNanoseconds, TimeUnit.NANOSECONDS)
    } catch (_: TimeoutException) {
        loss
    }

    /** The same for Java. */
    @Throws(InterruptedException::class)
    fun waitLost(limit: java.time.Duration): LossReason? = waitLost(limit.toKotlinDuration())

    /** Throws [LockLostException] if the lease was lost. No I/O. */
    fun throwIfLost() = calling { native.checkLost() }

    /**
     * Sets the end of the lease to [ttl] from now, unless it ends later already. It never adds or shortens. Throws
     * [InvalidArgumentException] before any I/O; [LockLostException] or [LockNotHeldException] when it is not held;
     * [ServerUnavailableException] when no server answered (the deadline is unchanged).
     */
    @JvmSynthetic
    suspend fun extend(ttl: Duration) = suspending(native, { it.extend(ttl.toMs()) }, { it.extendBlocking(ttl.toMs()) })

    /** The same on this thread. */
    @JvmSynthetic
    fun extendBlocking(ttl: Duration) = calling { native.extendBlocking(ttl.toMs()) }

    /** The same for Java. */
    @JvmName("extend")
    fun extendBlocking(ttl: java.time.Duration) = extendBlocking(ttl.toKotlinDuration())

    /** Makes a write lease a read lease, in place: at no moment could another writer enter. */
    @JvmSynthetic
    suspend fun downgrade() = suspending(native, { it.downgrade() }, { it.downgradeBlocking() })

    /** The same on this thread. */
    @JvmName("downgrade")
    fun downgradeBlocking() = calling { native.downgradeBlocking() }

    /**
     * Releases the lock, wakes a waiter, and returns what the server found. One round trip; it may be called again. If a
     * reentrant lock was entered more than once, this releases one entry.
     */
    @JvmSynthetic
    suspend fun release(): Release = suspending(looked, { it.release() }, { it.releaseBlocking() })

    /** The same on this thread. */
    @JvmName("release")
    fun releaseBlocking(): Release = calling { looked.releaseBlocking() }

    /** Releases the lock on this thread, for `use` and try-with-resources. What the server found is not told. */
    override fun close() {
        releaseBlocking()
    }

    /** Hands the hold away: the proof with which another process continues it ([Lock.attach]). This lease holds nothing then. */
    fun detach(): String = calling { native.detach() }

    override fun toString(): String = "Lease(name=$name, held=$isHeld, fencingToken=${looked.fencingToken().takeIf { it >= 0 }})"

    /** A lease of a thread has no suspending form: its call blocks a thread that may be blocked. */
    private suspend inline fun <T> suspending(
        native: NativeLease,
        crossinline call: suspend (NativeLease) -> T,
        crossinline blocking: (NativeLease) -> T,
    ): T = calling { if (native.isSuspending()) call(native) else withContext(Dispatchers.IO) { blocking(native) } }

    /** Without this a lease that its coroutine returns in the moment in which it is cancelled would be renewed for ever. */
    internal fun guardedBy(job: Job?): Lease {
        guard = Guard(handle).also { it.watch(job) }
        return this
    }

    private fun givenBack(): LockNotHeldException {
        val name = handle.name().decodeToString()
        val detail = "the lease was given back: its coroutine was cancelled before anybody looked at the lease"
        return LockNotHeldException(Failure(ErrorKind.NOT_HELD, "use the lease of \"$name\": $detail", name, "use the lease", detail))
    }
}
