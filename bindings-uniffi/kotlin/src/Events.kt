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
    /** For this package: what a program makes depend on it would run on the thread that tells events. */
    val lost = CompletableFuture<LossReason>()
    private var reason: LossReason? = null
    private val onLost = ArrayList<LossCallback>()
    private val onJeopardy = CopyOnWriteArrayList<Runnable>()

    fun addLost(callback: LossCallback) {
        val told = synchronized(onLost) {
            if (reason == null) onLost += callback
            reason
        }
        if (told != null) Events.run { callback.lost(told) }
    }

    /** For programs: what depends on it runs on the thread for callbacks. */
    fun lostFuture(): CompletableFuture<LossReason> = if (lost.isDone) lost.copy() else lost.thenApplyAsync({ it }, Events.callbacks)

    fun addJeopardy(callback: Runnable) {
        onJeopardy += callback
    }

    fun tellLost(reason: LossReason) {
        val callbacks = synchronized(onLost) {
            this.reason = reason
            onLost.toList().also { onLost.clear() }
        }
        lost.complete(reason)
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
    val callbacks: Executor = Executors.newSingleThreadExecutor { daemon("onelock-callbacks", it) }
    private val starting = lazy {
        callbacks.execute {}
        serving("onelock-events") { serve(nextEvent()) }
    }

    /** Before a lease is granted: a machine that has no thread left says so while there is nothing to lose. */
    fun start() = starting.value

    fun daemon(name: String, work: Runnable) = Thread(null, work, name).apply { isDaemon = true }

    /** Serves for ever on a thread. There is no second one, so nothing that is thrown ends it. */
    fun serving(name: String, serve: () -> Unit) = daemon(name) {
        while (true) {
            try {
                serve()
            } catch (error: Throwable) {
                log(System.Logger.Level.ERROR, "the thread $name goes on after an error", error)
                // where everything fails, it does not use up a processor
                runCatching { Thread.sleep(10) }
            }
        }
    }.start()

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
            log(System.Logger.Level.ERROR, "a callback of a lease threw", error)
        }
    }

    fun warn(text: String, error: Throwable? = null) = log(System.Logger.Level.WARNING, text, error)

    /** What the program's logger throws ends nothing here; it goes where the JVM reports such things, standard error. */
    private fun log(level: System.Logger.Level, text: String, error: Throwable?) = try {
        log.log(level, text, error)
    } catch (failure: Throwable) {
        reportFailure(failure)
    }

    private fun reportFailure(failure: Throwable) = try {
        failure.printStackTrace()
    } catch (_: Throwable) {
        // nothing is left to report it with
    }

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

/** What is set up once, with the first client. */
internal object Setup {
    private val prepared = lazy {
        // The library's thread, which continues coroutines, is a daemon of the JVM, and not made known to it anew for each call.
        Native.setCallbackThreadInitializer(uniffiRustFutureContinuationCallbackImpl, CallbackThreadInitializer(true, false, "onelock"))
        // It must not enter a JVM that has ended. What is held is released after this, so that other hooks may use it.
        try {
            Runtime.getRuntime().addShutdownHook(Thread(::processEnds, "onelock-exit"))
        } catch (_: IllegalStateException) {
            // the JVM ends already
            processEnds()
        }
    }

    fun prepare() = prepared.value
}
