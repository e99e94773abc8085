package onelock

import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.withContext

/**
 * A client of one server, of a group of servers, or of several independent ones of which a majority is asked.
 *
 * ```
 * Client("redis://localhost", clientOptions { ttl = 10.seconds }).use { client ->
 *     client.lock("orders:42").withLease { lease -> charge(order, fence = lease.fencingToken) }
 * }
 * ```
 *
 * Making one opens no connection and starts no thread; [connect] also checks the server. An empty address stands for
 * `$ONELOCK_URL`. What is held when the process ends is released, within a second.
 */
class Client @JvmOverloads constructor(urls: List<String>, options: ClientOptions = ClientOptions()) : AutoCloseable {
    private val native: NativeClient = make(urls, options).also { Setup.prepare() }

    @JvmOverloads
    constructor(url: String = "", options: ClientOptions = ClientOptions()) : this(listOf(url), options)

    /** A lock that one holds at a time; any `SET NX PX` client respects it. */
    @JvmOverloads
    fun lock(name: String, options: LockOptions? = null): Lock = make(Kind.MUTEX, name.encodeToByteArray(), options)

    /** The same, of a name that is bytes. */
    @JvmOverloads
    fun lock(name: ByteArray, options: LockOptions? = null): Lock = make(Kind.MUTEX, name, options)

    /** A lock that its owner ([LockOptions.owner]) may enter again; shared with Redisson's `RLock`. */
    @JvmOverloads
    fun reentrantLock(name: String, options: LockOptions? = null): Lock = make(Kind.REENTRANT, name.encodeToByteArray(), options)

    /** A lock that is granted first come, first served. */
    @JvmOverloads
    fun fairLock(name: String, options: LockOptions? = null): Lock = make(Kind.FAIR, name.encodeToByteArray(), options)

    /** Many readers at a time or one writer; shared with Redisson's `RReadWriteLock`. */
    @JvmOverloads
    fun rwLock(name: String, options: LockOptions? = null): RwLock =
        RwLock(make(Kind.READ, name.encodeToByteArray(), options), make(Kind.WRITE, name.encodeToByteArray(), options))

    /** At most [permits] holders at a time, by default as many as are set on the server. */
    @JvmOverloads
    fun semaphore(name: String, permits: Int? = null, options: LockOptions? = null): Lock =
        make(Kind.SEMAPHORE, name.encodeToByteArray(), options, permits)

    /** A lock of any kind. */
    @JvmOverloads
    fun lockOf(kind: Kind, name: ByteArray, options: LockOptions? = null, permits: Int? = null): Lock =
        make(kind, name, options, permits)

    /** Several plain locks as one, all or none. Of other kinds and clients: [Lock.of]. */
    fun multiLock(vararg names: String): Lock = Lock.of(names.map { lock(it) })

    private fun make(kind: Kind, name: ByteArray, options: LockOptions?, permits: Int? = null): Lock =
        Lock(calling { native.lock(kind, name, (options ?: LockOptions()).native(permits)) }, listOfNotNull(options))

    /** Asks the server whether it is there and fit for locks. */
    @JvmSynthetic
    suspend fun check(): ServerFacts = calling { native.check() }

    /** The same on this thread. */
    @JvmName("check")
    fun checkBlocking(): ServerFacts = calling { native.checkBlocking() }

    /** Looks at the servers step by step: what fails, and what to do. With a lock's name also at the servers that serve it. */
    @JvmSynthetic
    suspend fun diagnose(name: String = ""): Diagnosis = calling { native.diagnose(name.encodeToByteArray()) }

    /** The same on this thread. */
    @JvmName("diagnose")
    @JvmOverloads
    fun diagnoseBlocking(name: String = ""): Diagnosis = calling { native.diagnoseBlocking(name.encodeToByteArray()) }

    /** Who holds a lock; null when nobody does. */
    @JvmSynthetic
    suspend fun inspect(name: String): Inspection? = inspect(name.encodeToByteArray())

    /** The same, of a name that is bytes. */
    @JvmSynthetic
    suspend fun inspect(name: ByteArray): Inspection? = calling { native.inspect(name) }

    /** The same on this thread. */
    @JvmName("inspect")
    fun inspectBlocking(name: String): Inspection? = calling { native.inspectBlocking(name.encodeToByteArray()) }

    /** One page of the locks that are held and whose names match [pattern]: `*` is any text, `?` one byte. */
    @JvmSynthetic
    suspend fun list(pattern: String = "*", limit: Int = 100, cursor: String? = null): LockPage =
        list(pattern.encodeToByteArray(), limit, cursor)

    /** The same, of a pattern that is bytes. */
    @JvmSynthetic
    suspend fun list(pattern: ByteArray, limit: Int = 100, cursor: String? = null): LockPage =
        calling { native.list(pattern, limit, cursor) }

    /** The same on this thread. */
    @JvmName("list")
    @JvmOverloads
    fun listBlocking(pattern: String = "*", limit: Int = 100, cursor: String? = null): LockPage =
        calling { native.listBlocking(pattern.encodeToByteArray(), limit, cursor) }

    /**
     * Ends the hold of whoever holds the lock, who is told at the next renewal; also holds of Redisson and of other `SET NX PX`
     * clients. With [foreign] also a text without a ttl, which no lock of this library is. False when nothing was held.
     */
    @JvmSynthetic
    suspend fun forceRelease(name: String, foreign: Boolean = false): Boolean = forceRelease(name.encodeToByteArray(), foreign)

    /** The same, of a name that is bytes. */
    @JvmSynthetic
    suspend fun forceRelease(name: ByteArray, foreign: Boolean = false): Boolean = calling { native.forceRelease(name, foreign) }

    /** The same on this thread. */
    @JvmName("forceRelease")
    @JvmOverloads
    fun forceReleaseBlocking(name: String, foreign: Boolean = false): Boolean =
        calling { native.forceReleaseBlocking(name.encodeToByteArray(), foreign) }

    /** What this client has done so far. No I/O. */
    fun stats(): Stats = native.stats()

    /** Releases what is held and waits for it, at most `closeTimeout`. Leases that are held are lost, and later calls refused. */
    override fun close() = calling { native.closeBlocking() }

    /** The same, suspending. */
    @JvmSynthetic
    suspend fun closeSuspending() = calling { native.closeSuspending() }

    companion object {
        /** A client that is connected and checked. Settings of the server that endanger exclusion are logged as warnings. */
        @JvmSynthetic
        suspend fun connect(url: String = "", options: ClientOptions = ClientOptions()): Client = connect(listOf(url), options)

        /** The same of several servers, of which a majority is asked. */
        @JvmSynthetic
        suspend fun connect(urls: List<String>, options: ClientOptions = ClientOptions()): Client {
            val client = Client(urls, options)
            try {
                warn(client.check())
            } catch (error: Throwable) {
                // nobody else could close its connections
                withContext(NonCancellable) { client.closeSuspending() }
                throw error
            }
            return client
        }

        /** The same on this thread. */
        @JvmStatic
        @JvmName("connect")
        @JvmOverloads
        fun connectBlocking(url: String = "", options: ClientOptions = ClientOptions()): Client =
            connectBlocking(listOf(url), options)

        /** The same of several servers, of which a majority is asked. */
        @JvmStatic
        @JvmName("connect")
        @JvmOverloads
        fun connectBlocking(urls: List<String>, options: ClientOptions = ClientOptions()): Client =
            Client(urls, options).also { client ->
                try {
                    warn(client.checkBlocking())
                } catch (error: Throwable) {
                    client.close()
                    throw error
                }
            }

        private fun make(urls: List<String>, options: ClientOptions): NativeClient {
            if (urls.isEmpty()) throw invalid("make a client", "there is no address; an empty text stands for \$ONELOCK_URL")
            val provider = options.credentials?.let(Providers::number)
            try {
                return calling { NativeClient(urls, options.native(provider)) }
            } catch (error: Throwable) {
                provider?.let(Providers::forget)
                throw error
            }
        }

        private fun warn(facts: ServerFacts) = facts.dangers.forEach { Events.warn("${facts.server}: $it") }
    }
}
