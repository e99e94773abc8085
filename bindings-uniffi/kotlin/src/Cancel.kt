package onelock

import java.nio.channels.AsynchronousCloseException
import java.nio.channels.spi.AbstractInterruptibleChannel

/**
 * Ends waits of threads from another thread: `lock.acquireBlocking(cancel = cancel)` then throws [LockCancelledException] within
 * 50 ms, and holds nothing. Once cancelled it stays so. Coroutines are cancelled by their job instead.
 */
class Cancel {
    private val waits = HashSet<Interruption>()

    /** Whether [cancel] was called. */
    @get:Synchronized
    var isCancelled: Boolean = false
        private set

    /** Ends every wait that was given this. */
    @Synchronized
    fun cancel() {
        isCancelled = true
        waits.forEach(Interruption::cancel)
    }

    @Synchronized
    internal fun add(wait: Interruption) {
        waits += wait
        if (isCancelled) wait.cancel()
    }

    @Synchronized
    internal fun remove(wait: Interruption) {
        waits -= wait
    }
}

/** What ends the waits of one thread: `Thread.interrupt`, of which the JVM tells its interruptible channels, or a [Cancel]. */
internal class Interruption : AbstractInterruptibleChannel() {
    private val native = NativeCancel()

    @Volatile
    private var spent = false

    override fun implCloseChannel() = cancel()

    fun cancel() {
        spent = true
        native.cancel()
    }

    private fun <T> during(cancel: Cancel?, wait: (NativeCancel) -> T): T {
        begin()
        cancel?.add(this)
        val result = runCatching { wait(native) }
        cancel?.remove(this)
        try {
            end(result.isSuccess)
        } catch (_: AsynchronousCloseException) {
            // the result tells
        }
        if (spent) CURRENT.remove()
        val failure = result.exceptionOrNull()
        if (failure is LockCancelledException && cancel?.isCancelled != true && Thread.interrupted()) {
            throw InterruptedException(failure.message)
        }
        return result.getOrThrow()
    }

    companion object {
        private val CURRENT: ThreadLocal<Interruption> = ThreadLocal.withInitial(::Interruption)

        /** Runs a wait of this thread. A lease that was granted before the thread was interrupted is returned. */
        fun <T> during(cancel: Cancel?, wait: (NativeCancel) -> T): T = CURRENT.get().during(cancel, wait)
    }
}
