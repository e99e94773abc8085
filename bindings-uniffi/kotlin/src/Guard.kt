package onelock

import java.lang.ref.WeakReference
import java.util.concurrent.atomic.AtomicReference
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.DisposableHandle
import kotlinx.coroutines.ExperimentalCoroutinesApi
import kotlinx.coroutines.Job
import kotlinx.coroutines.launch

/**
 * Gives a lease back when a coroutine that was to get it was cancelled before anybody looked at the lease: `withTimeout` and
 * `withContext` may end in the very moment in which they return it, and then nobody has it. It does not keep the lease from
 * being collected.
 */
internal class Guard(lease: NativeLease) {
    private val lease = WeakReference(lease)
    private val state = AtomicReference(State.UNSEEN)

    /** On the outermost coroutine so far. */
    private val watching = AtomicReference(Watch(-1, DisposableHandle {}))

    private enum class State { UNSEEN, SEEN, GIVEN_BACK }

    private class Watch(val level: Int, val handle: DisposableHandle)

    val isGivenBack: Boolean get() = state.get() == State.GIVEN_BACK

    /** Somebody has the lease. */
    fun look() {
        if (state.get() == State.UNSEEN && state.compareAndSet(State.UNSEEN, State.SEEN)) watching.get().handle.dispose()
    }

    /** Watches the coroutine that acquires, and when that ends well the one that it returns the lease to, and so on. */
    @OptIn(ExperimentalCoroutinesApi::class)
    fun watch(job: Job?) {
        // a job that has ended does not know its parent any more
        watch(generateSequence(job) { it.parent }.toList(), 0)
    }

    private fun watch(jobs: List<Job>, level: Int) {
        val job = jobs.firstOrNull() ?: return
        // a job that has ended has the lease, as its result: what hangs on its parent must not refer to it
        val outer = jobs.drop(1)
        val handle = job.invokeOnCompletion { cause ->
            if (cause is CancellationException) giveBack()
            if (cause == null && state.get() == State.UNSEEN) watch(outer, level + 1)
        }
        // the job may have ended meanwhile, and its parent be watched
        val outermost = watching.accumulateAndGet(Watch(level, handle)) { one, other -> if (one.level > other.level) one else other }
        // a look at this moment saw the one before
        if (state.get() == State.SEEN) outermost.handle.dispose()
    }

    private fun giveBack() {
        val lease = lease.get() ?: return
        if (!state.compareAndSet(State.UNSEEN, State.GIVEN_BACK)) return
        CoroutineScope(Dispatchers.IO).launch {
            try {
                lease.releaseBlocking()
            } catch (error: Throwable) {
                Events.warn("a lease whose coroutine was cancelled could not be given back", error)
            }
        }
    }
}
