package onelock

import kotlin.time.Duration
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.toKotlinDuration

/** Whole milliseconds, rounded up, so that what is above zero stays so. Negative is refused by the library. */
internal fun Duration.toMs(): Long = when {
    isNegative() -> Long.MIN_VALUE
    isInfinite() -> Long.MAX_VALUE
    else -> inWholeMilliseconds.let { if (it.milliseconds < this) it + 1 else it }
}

/** The wait of an acquire; null and infinity are for ever. */
internal fun Duration?.toWaitMs(): Long = if (this == null || this == Duration.INFINITE) -1 else toMs()

/** Options of a client: `clientOptions { ttl = 10.seconds }`. */
fun clientOptions(set: ClientOptions.() -> Unit): ClientOptions = ClientOptions().apply(set)

/** Options of a lock: `lockOptions { ttl = 10.seconds }`. */
fun lockOptions(set: LockOptions.() -> Unit): LockOptions = LockOptions().apply(set)

/**
 * The options of a client; those that are not set have the defaults. In Kotlin they are properties, in Java setters that can be
 * chained: `new ClientOptions().ttl(Duration.ofSeconds(10))`.
 */
class ClientOptions {
    // written by tools/options.py: client
    /**
     * Length of a lease: how long others wait after a crash of the holder (10 ms to one year). Default: 30 s.
     *
     * With renewal the work may take longer.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var ttl: Duration? = null

    /** Sets [ttl]. */
    fun ttl(value: java.time.Duration): ClientOptions = apply { ttl = value.toKotlinDuration() }

    /**
     * Whether leases are renewed in the background, every third of the ttl, until they are released. Default: true.
     *
     * A lease that is not renewed ends after its ttl, unless it is extended.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var autoRenew: Boolean? = null

    /** Sets [autoRenew]. */
    fun autoRenew(value: Boolean): ClientOptions = apply { autoRenew = value }

    /**
     * How long a lock stays taken at least, even if it is released earlier (at most the ttl). Default: 0.
     *
     * A job that tries once, with a `minHold` above the difference between the clocks, runs on only one of many
     * machines each time.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var minHold: Duration? = null

    /** Sets [minHold]. */
    fun minHold(value: java.time.Duration): ClientOptions = apply { minHold = value.toKotlinDuration() }

    /**
     * The longest time a lease may be held; then renewal stops and the lease is lost (at least 1 ms). Default: no
     * limit.
     *
     * It bounds a holder that hangs.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var maxHold: Duration? = null

    /** Sets [maxHold]. */
    fun maxHold(value: java.time.Duration): ClientOptions = apply { maxHold = value.toKotlinDuration() }

    /**
     * How much longer than the lease the key lives: others wait that much longer after a crash. Default: 0.
     *
     * A release is not delayed by it.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var lockDelay: Duration? = null

    /** Sets [lockDelay]. */
    fun lockDelay(value: java.time.Duration): ClientOptions = apply { lockDelay = value.toKotlinDuration() }

    /**
     * How much of a lease must be left when its grant arrives (less than the ttl). Default: 0.
     *
     * A grant that arrives later is undone, and waiting goes on.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var minValidity: Duration? = null

    /** Sets [minValidity]. */
    fun minValidity(value: java.time.Duration): ClientOptions = apply { minValidity = value.toKotlinDuration() }

    /** Whether each grant draws a fencing token. Default: true. */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var fencing: Boolean? = null

    /** Sets [fencing]. */
    fun fencing(value: Boolean): ClientOptions = apply { fencing = value }

    /**
     * The share of the ttl by which the clocks of server and holder may run apart (0 to 0.5). Default: 0.01.
     *
     * The holder's lease ends that much earlier than the key on the server, and 2 ms on top.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var driftFactor: Double? = null

    /** Sets [driftFactor]. */
    fun driftFactor(value: Double): ClientOptions = apply { driftFactor = value }

    /**
     * Put before every name, once (at most 512 bytes). Default: none.
     *
     * It keeps the locks of several programs on one server apart, and lets an access rule name them.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var prefix: ByteArray? = null

    /** Sets [prefix]. */
    fun prefix(value: ByteArray): ClientOptions = apply { prefix = value }

    /**
     * The weakest grade of fencing tokens: `None`, `BestEffort`, `ClockBounded` or `Strict`. Default: None.
     *
     * A server with a weaker grade is refused when the client connects.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var minFencingGrade: Grade? = null

    /** Sets [minFencingGrade]. */
    fun minFencingGrade(value: Grade): ClientOptions = apply { minFencingGrade = value }

    /**
     * Names this client in `CLIENT LIST` and in inspection (at most 128 bytes, no control characters). Default: none.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var label: String? = null

    /** Sets [label]. */
    fun label(value: String): ClientOptions = apply { label = value }

    /**
     * Whether a hold stores label, process, host and time for inspection. Default: false.
     *
     * Everybody who may read the key can read them.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var inspectable: Boolean? = null

    /** Sets [inspectable]. */
    fun inspectable(value: Boolean): ClientOptions = apply { inspectable = value }

    /**
     * Names of warnings about the server that are not logged, such as `persistence replicas`. Default: none.
     *
     * A name stands in brackets at the end of its warning. Names are separated by spaces or commas.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var acceptedWarnings: String? = null

    /** Sets [acceptedWarnings]. */
    fun acceptedWarnings(value: String): ClientOptions = apply { acceptedWarnings = value }

    /** Time limit of making a connection, name resolution and TLS included (at least 1 ms). Default: 2 s. */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var connectTimeout: Duration? = null

    /** Sets [connectTimeout]. */
    fun connectTimeout(value: java.time.Duration): ClientOptions = apply { connectTimeout = value.toKotlinDuration() }

    /**
     * Time limit of one request (at least 1 ms). Default: 1 s.
     *
     * A connection that is slower is closed.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var requestTimeout: Duration? = null

    /** Sets [requestTimeout]. */
    fun requestTimeout(value: java.time.Duration): ClientOptions = apply { requestTimeout = value.toKotlinDuration() }

    /** Time limit of closing the client (at least 1 ms). Default: 1 s. */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var closeTimeout: Duration? = null

    /** Sets [closeTimeout]. */
    fun closeTimeout(value: java.time.Duration): ClientOptions = apply { closeTimeout = value.toKotlinDuration() }

    /** How long an acquire without a time limit retries an unreachable server (at least 1 ms). Default: 30 s. */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var unreachableLimit: Duration? = null

    /** Sets [unreachableLimit]. */
    fun unreachableLimit(value: java.time.Duration): ClientOptions = apply { unreachableLimit = value.toKotlinDuration() }

    /**
     * A function that gives user name and password of each new connection. Default: what the address says.
     *
     * It is for passwords that expire, such as the tokens of cloud services.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var credentials: CredentialsProvider? = null

    /** Sets [credentials]. */
    fun credentials(value: CredentialsProvider): ClientOptions = apply { credentials = value }

    /** File with the certificates of the trusted authorities, PEM, for TLS. Default: the system's. */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var caFile: String? = null

    /** Sets [caFile]. */
    fun caFile(value: String): ClientOptions = apply { caFile = value }

    /**
     * Files with this client's certificate and private key, PEM. Default: none.
     *
     * They are for servers that ask for them. Set both.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var certFile: String? = null

    /** Sets [certFile]. */
    fun certFile(value: String): ClientOptions = apply { certFile = value }

    /**
     * Files with this client's certificate and private key, PEM. Default: none.
     *
     * They are for servers that ask for them. Set both.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var keyFile: String? = null

    /** Sets [keyFile]. */
    fun keyFile(value: String): ClientOptions = apply { keyFile = value }

    /**
     * Whether any certificate is accepted; for experiments only. Default: false.
     *
     * Anybody in between can then read and take locks. The client logs a warning.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var tlsInsecure: Boolean? = null

    /** Sets [tlsInsecure]. */
    fun tlsInsecure(value: Boolean): ClientOptions = apply { tlsInsecure = value }

    /** How a cluster's releases are announced: `auto`, `classic`, `sharded` or `both`. Default: auto. */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var notify: Notify? = null

    /** Sets [notify]. */
    fun notify(value: Notify): ClientOptions = apply { notify = value }

    /**
     * How many replicas must confirm a grant, with `WAIT`; a grant that fewer confirm is undone. Default: 0.
     *
     * The loss of a lock in a failover becomes less likely, but it is not excluded. Redlock, `file://` and `memory://`
     * refuse it.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var minReplicas: Int? = null

    /** Sets [minReplicas]. */
    fun minReplicas(value: Int): ClientOptions = apply { minReplicas = value }

    /** Time limit of the confirmation by replicas (at least 1 ms). Default: 1 s. */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var replicaTimeout: Duration? = null

    /** Sets [replicaTimeout]. */
    fun replicaTimeout(value: java.time.Duration): ClientOptions = apply { replicaTimeout = value.toKotlinDuration() }

    /** User name for the Sentinels; the one in the address is the master's. Default: their default user. */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var sentinelUsername: String? = null

    /** Sets [sentinelUsername]. */
    fun sentinelUsername(value: String): ClientOptions = apply { sentinelUsername = value }

    /** Password for the Sentinels; the one in the address is the master's. Default: none. */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var sentinelPassword: String? = null

    /** Sets [sentinelPassword]. */
    fun sentinelPassword(value: String): ClientOptions = apply { sentinelPassword = value }

    /** Whether connections to Sentinels use TLS, with the same certificate files. Default: false. */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var sentinelTls: Boolean? = null

    /** Sets [sentinelTls]. */
    fun sentinelTls(value: Boolean): ClientOptions = apply { sentinelTls = value }

    /**
     * Redlock: time limit of one request to one server (at least 1 ms, at most the `requestTimeout`). Default: 200 ms.
     *
     * A server that is slower counts as absent.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var nodeTimeout: Duration? = null

    /** Sets [nodeTimeout]. */
    fun nodeTimeout(value: java.time.Duration): ClientOptions = apply { nodeTimeout = value.toKotlinDuration() }

    /**
     * Redlock: how long a server that restarted without its data does not vote. Default: twice the ttl, at least 60 s.
     *
     * It must be longer than any lease on these servers. 0 switches it off.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var quarantine: Duration? = null

    /** Sets [quarantine]. */
    fun quarantine(value: java.time.Duration): ClientOptions = apply { quarantine = value.toKotlinDuration() }
    // end of client

    /** [credentials] is the number of the function. */
    internal fun native(credentials: Long?) = NativeClientOptions(
        // written by tools/options.py: values of a client
        ttlMs = ttl?.toMs(),
        autoRenew = autoRenew,
        minHoldMs = minHold?.toMs(),
        maxHoldMs = maxHold?.toMs(),
        lockDelayMs = lockDelay?.toMs(),
        minValidityMs = minValidity?.toMs(),
        fencing = fencing,
        driftFactor = driftFactor,
        prefix = prefix,
        minFencingGrade = minFencingGrade,
        label = label,
        inspectable = inspectable,
        acceptedWarnings = acceptedWarnings,
        connectTimeoutMs = connectTimeout?.toMs(),
        requestTimeoutMs = requestTimeout?.toMs(),
        closeTimeoutMs = closeTimeout?.toMs(),
        unreachableLimitMs = unreachableLimit?.toMs(),
        credentials = credentials,
        caFile = caFile,
        certFile = certFile,
        keyFile = keyFile,
        tlsInsecure = tlsInsecure,
        notify = notify,
        minReplicas = minReplicas,
        replicaTimeoutMs = replicaTimeout?.toMs(),
        sentinelUsername = sentinelUsername,
        sentinelPassword = sentinelPassword,
        sentinelTls = sentinelTls,
        nodeTimeoutMs = nodeTimeout?.toMs(),
        quarantineMs = quarantine?.toMs(),
        // end of values of a client
    )
}

/** The options of a lock; those that are not set have the client's values. */
class LockOptions {
    // written by tools/options.py: lock
    /**
     * Length of a lease: how long others wait after a crash of the holder (10 ms to one year). Default: 30 s.
     *
     * With renewal the work may take longer.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var ttl: Duration? = null

    /** Sets [ttl]. */
    fun ttl(value: java.time.Duration): LockOptions = apply { ttl = value.toKotlinDuration() }

    /**
     * Whether leases are renewed in the background, every third of the ttl, until they are released. Default: true.
     *
     * A lease that is not renewed ends after its ttl, unless it is extended.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var autoRenew: Boolean? = null

    /** Sets [autoRenew]. */
    fun autoRenew(value: Boolean): LockOptions = apply { autoRenew = value }

    /**
     * How long a lock stays taken at least, even if it is released earlier (at most the ttl). Default: 0.
     *
     * A job that tries once, with a `minHold` above the difference between the clocks, runs on only one of many
     * machines each time.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var minHold: Duration? = null

    /** Sets [minHold]. */
    fun minHold(value: java.time.Duration): LockOptions = apply { minHold = value.toKotlinDuration() }

    /**
     * The longest time a lease may be held; then renewal stops and the lease is lost (at least 1 ms). Default: no
     * limit.
     *
     * It bounds a holder that hangs.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var maxHold: Duration? = null

    /** Sets [maxHold]. */
    fun maxHold(value: java.time.Duration): LockOptions = apply { maxHold = value.toKotlinDuration() }

    /**
     * How much longer than the lease the key lives: others wait that much longer after a crash. Default: 0.
     *
     * A release is not delayed by it.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var lockDelay: Duration? = null

    /** Sets [lockDelay]. */
    fun lockDelay(value: java.time.Duration): LockOptions = apply { lockDelay = value.toKotlinDuration() }

    /**
     * How much of a lease must be left when its grant arrives (less than the ttl). Default: 0.
     *
     * A grant that arrives later is undone, and waiting goes on.
     */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var minValidity: Duration? = null

    /** Sets [minValidity]. */
    fun minValidity(value: java.time.Duration): LockOptions = apply { minValidity = value.toKotlinDuration() }

    /** Whether each grant draws a fencing token. Default: true. */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var fencing: Boolean? = null

    /** Sets [fencing]. */
    fun fencing(value: Boolean): LockOptions = apply { fencing = value }
    // end of lock

    /** The owner of a reentrant lock: acquires with the same owner share one hold. By default each acquire has its own. */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var owner: String? = null

    /** [Lease.onLost] of every lease. */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var onLost: LossCallback? = null

    /** [Lease.onJeopardy] of every lease. */
    @get:JvmSynthetic
    @set:JvmSynthetic
    var onJeopardy: Runnable? = null

    /** Sets [owner]. */
    fun owner(owner: String): LockOptions = apply { this.owner = owner }

    /** Sets [onLost]. */
    fun onLost(callback: LossCallback): LockOptions = apply { onLost = callback }

    /** Sets [onJeopardy]. */
    fun onJeopardy(callback: Runnable): LockOptions = apply { onJeopardy = callback }

    internal fun native(permits: Int?) = NativeLockOptions(
        // written by tools/options.py: values of a lock
        ttlMs = ttl?.toMs(),
        autoRenew = autoRenew,
        minHoldMs = minHold?.toMs(),
        maxHoldMs = maxHold?.toMs(),
        lockDelayMs = lockDelay?.toMs(),
        minValidityMs = minValidity?.toMs(),
        fencing = fencing,
        // end of values of a lock
        renewEveryMs = null,
        owner = owner,
        totalPermits = permits,
        count = null,
    )
}
