package onelock

import com.sun.jna.CallbackThreadInitializer
import com.sun.jna.Native
import java.lang.ref.WeakReference
import java.util.concurrent.CompletableFuture
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.CopyOnWriteArrayList
import java.util.concurrent.Executor
import java.util.concurrent.Executors
import java.util.concurrent.atomic.AtomicLong

/** Is called when a lease is lost. */
fun interface LossCallback {
    fun lost(reason: LossReason)
}

/** The listeners of one lease, which owns them: with the lease they are collected. */
internal class Listeners {
    val lost = CompletableFuture<LossReason>()
    private val onLost = ArrayList<LossCallback>()
    private val onJeopardy = CopyOnWriteArrayList<Runnable>()

    fun addLost(callback: LossCallback) {
        synchronized(onLost) {
            if (!lost.isDone) {
                onLost += callback
                return
            }
        }
        Events.run { callback.lost(lost.get()) }
    }

    fun addJeopardy(callback: Runnable) {
        onJeopardy += callback
    }

    fun tellLost(reason: LossReason) {
        val callbacks = synchronized(onLost) {
            lost.complete(reason)
            onLost.toList().also { onLost.clear() }
        }
        callbacks.forEach { Events.run { it.lost(reason) } }
    }

    fun tellJeopardy() = onJeopardy.forEach { Events.run(it::run) }
}

/**
 * What the library tells unasked. One daemon thread fetches it, another one runs the callbacks of programs; both are kept, and
 * neither keeps the process alive.
 */
internal object Events {
    private val log: System.Logger = System.getLogger("onelock")
    private val numbers = AtomicLong()
    private val listeners = ConcurrentHashMap<Long, WeakReference<Listeners>>()
    private val callbacks: Executor = Executors.newSingleThreadExecutor { daemon("onelock-callbacks", it) }
    private val starting = lazy { daemon("onelock-events") { while (true) serve(nextEvent()) }.start() }

    fun start() = starting.value

    fun daemon(name: String, work: Runnable) = Thread(null, work, name).apply { isDaemon = true }

    /** Passes what happens to a lease to its listeners. */
    fun watch(lease: NativeLease, watching: Listeners) {
        val number = numbers.incrementAndGet()
        listeners[number] = WeakReference(watching)
        lease.setNumber(number)
        lease.watchLoss()
        lease.watchJeopardy()
    }

    /** Runs a callback of the program, after those before it. */
    fun run(callback: () -> Unit) = callbacks.execute {
        try {
            callback()
        } catch (error: Throwable) {
            log.log(System.Logger.Level.ERROR, "a callback of a lease threw", error)
        }
    }

    fun warn(text: String) = log.log(System.Logger.Level.WARNING, text)

    private fun serve(event: NativeEvent) = when (event) {
        is NativeEvent.Lost -> listeners[event.lease]?.get()?.tellLost(event.reason) ?: Unit
        is NativeEvent.Jeopardy -> listeners[event.lease]?.get()?.tellJeopardy() ?: Unit
        is NativeEvent.Gone -> {
            listeners.remove(event.lease)
            Unit
        }
        is NativeEvent.Unreleased -> warn(
            "the lease of \"${event.name.decodeToString()}\" was neither released nor lost when it was collected; " +
                "use `use`, `withLease`, or call release()",
        )
    }
}

/** The library's thread, which continues coroutines, is a daemon of the JVM, and not made known to it anew for each call. */
internal object NativeThreads {
    private val prepared = lazy {
        Native.setCallbackThreadInitializer(uniffiRustFutureContinuationCallbackImpl, CallbackThreadInitializer(true, false, "onelock"))
    }

    fun prepare() = prepared.value
}
