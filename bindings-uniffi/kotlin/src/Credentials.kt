package onelock

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.Executor
import java.util.concurrent.Executors
import java.util.concurrent.atomic.AtomicLong

/** User name and password of a new connection. The user name may be empty. */
class Credentials(val username: String, val password: String) {
    constructor(password: String) : this("", password)

    /** Without the password. */
    override fun toString(): String = "Credentials(username=$username)"
}

/**
 * Gives the credentials of each new connection, for passwords that expire. It is called on daemon threads of its own, where it
 * may block, and has the rest of `connectTimeout`. What it throws becomes the reason of a [ServerUnavailableException].
 */
fun interface CredentialsProvider {
    fun credentials(): Credentials
}

/** The providers by their numbers, for as long as connections may ask them. */
internal object Providers {
    private val numbers = AtomicLong()
    private val providers = ConcurrentHashMap<Long, CredentialsProvider>()
    private val callers: Executor = Executors.newCachedThreadPool { Events.daemon("onelock-credentials", it) }
    private val starting = lazy { Events.serving("onelock-requests") { serve(nextCredentialsEvent()) } }

    fun number(provider: CredentialsProvider): Long {
        starting.value
        return numbers.incrementAndGet().also { providers[it] = provider }
    }

    /** No client came to be that would ask it. */
    fun forget(number: Long) {
        providers.remove(number)
    }

    /** How many are kept. */
    val count: Int get() = providers.size

    private fun serve(event: NativeCredentialsEvent) {
        when (event) {
            is NativeCredentialsEvent.Gone -> providers.remove(event.provider)
            is NativeCredentialsEvent.Wanted -> {
                val provider = providers[event.provider]
                try {
                    callers.execute { answer(event.request, provider) }
                } catch (error: Throwable) {
                    refuse(event.request, error)
                }
            }
        }
    }

    private fun answer(request: Long, provider: CredentialsProvider?) = try {
        val given = checkNotNull(provider) { "the provider is gone" }.credentials()
        answerCredentials(request, given.username, given.password, null)
    } catch (error: Throwable) {
        refuse(request, error)
    }

    private fun refuse(request: Long, error: Throwable) =
        answerCredentials(request, "", "", error.message ?: error.javaClass.name)
}
