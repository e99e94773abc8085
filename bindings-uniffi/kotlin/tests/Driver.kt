package onelock.tests

import java.util.concurrent.ConcurrentHashMap
import kotlin.concurrent.thread
import kotlin.time.Duration
import kotlin.time.Duration.Companion.milliseconds
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.Job
import kotlinx.coroutines.SupervisorJob
import kotlinx.coroutines.delay
import kotlinx.coroutines.launch
import onelock.Client
import onelock.ClientOptions
import onelock.Grade
import onelock.HolderInfo
import onelock.Inspection
import onelock.Kind
import onelock.Lease
import onelock.Lock
import onelock.LockEntry
import onelock.LockOptions
import onelock.OnelockException
import onelock.Permits
import onelock.errorRows
import onelock.kindWord

// The driver of the scenarios that all languages share: carries out what the supervisor asks for, one line of JSON at a time,
// with a coroutine for each request. The protocol stands in tests/drivers/README.md.

private class DriverError(text: String) : Exception(text)

private class BodyError : Exception("the body failed")

private typealias Arguments = Map<String, Any?>

private val clients = ConcurrentHashMap<String, Client>()
private val leases = ConcurrentHashMap<String, Lease>()
private val requests = ConcurrentHashMap<Long, Job>()
private val KINDS = Kind.entries.associateBy(::kindWord)
private val ERRORS by lazy { errorRows().associate { it.kind to it.name } }

private val LEASE = setOf("ttl_ms", "auto_renew", "min_hold_ms", "max_hold_ms", "lock_delay_ms", "min_validity_ms", "fencing")
private val KNOWN = LEASE + setOf(
    "prefix", "drift_factor", "min_fencing_grade", "label", "inspectable", "connect_timeout_ms", "request_timeout_ms",
    "close_timeout_ms", "unreachable_limit_ms", "quarantine_ms", "client", "url", "kind", "name", "also", "lease", "wait_ms", "limit_ms",
    "proof", "request", "body", "owner", "foreign", "pattern", "limit", "cursor", "permits", "count",
)

/** The clock that all processes of the machine share, as far as it has not slept. */
private fun now(): Long = System.nanoTime()

private fun write(line: Map<String, Any?>) = synchronized(System.out) {
    println(Json.write(line))
    System.out.flush()
}

private fun Arguments.text(key: String): String = this[key] as? String ?: throw DriverError("$key is missing")

private fun Arguments.ms(key: String): Duration? = (this[key] as Number?)?.toLong()?.milliseconds

private fun Arguments.int(key: String): Int? = (this[key] as Number?)?.toInt()

@OptIn(ExperimentalStdlibApi::class)
private fun Arguments.bytes(key: String): ByteArray = when (val given = this[key]) {
    is String -> given.encodeToByteArray()
    is Map<*, *> -> (given["hex"] as String).hexToByteArray()
    else -> throw DriverError("$key is missing")
}

private fun <T> found(objects: Map<String, T>, name: String): T = objects[name] ?: throw DriverError("there is no $name")

private fun clientOptions(args: Arguments) = ClientOptions().apply {
    ttl = args.ms("ttl_ms")
    autoRenew = args["auto_renew"] as Boolean?
    minHold = args.ms("min_hold_ms")
    maxHold = args.ms("max_hold_ms")
    lockDelay = args.ms("lock_delay_ms")
    minValidity = args.ms("min_validity_ms")
    fencing = args["fencing"] as Boolean?
    driftFactor = (args["drift_factor"] as Number?)?.toDouble()
    prefix = args["prefix"]?.let { args.bytes("prefix") }
    minFencingGrade = (args["min_fencing_grade"] as String?)?.let { word ->
        Grade.entries.first { it.name.replace("_", "").equals(word, ignoreCase = true) }
    }
    label = args["label"] as String?
    inspectable = args["inspectable"] as Boolean?
    connectTimeout = args.ms("connect_timeout_ms")
    requestTimeout = args.ms("request_timeout_ms")
    closeTimeout = args.ms("close_timeout_ms")
    unreachableLimit = args.ms("unreachable_limit_ms")
    quarantine = args.ms("quarantine_ms")
}

private fun lockOptions(args: Arguments) = LockOptions().apply {
    ttl = args.ms("ttl_ms")
    autoRenew = args["auto_renew"] as Boolean?
    minHold = args.ms("min_hold_ms")
    maxHold = args.ms("max_hold_ms")
    lockDelay = args.ms("lock_delay_ms")
    minValidity = args.ms("min_validity_ms")
    fencing = args["fencing"] as Boolean?
    owner = args["owner"] as String?
}

private fun lockOf(args: Arguments): Lock {
    val client = found(clients, args.text("client"))
    val kind = KINDS[args.text("kind")] ?: throw DriverError("there is no kind ${args["kind"]}")
    fun one(key: String): Lock {
        val lock = client.lockOf(kind, args.bytes(key), lockOptions(args), args.int("permits"))
        return args.int("count")?.let(lock::taking) ?: lock
    }
    return if ("also" in args) Lock.of(one("name"), one("also")) else one("name")
}

private fun view(lease: Lease): Map<String, Any?> {
    val at = now()
    return mapOf(
        "at_ns" to at,
        "held" to lease.isHeld,
        "remaining_ms" to lease.remaining.inWholeMicroseconds / 1e3,
        "name" to lease.name,
        "kind" to lease.kindWord(),
        "token" to lease.fencingToken,
        "count" to lease.holdCount,
        "loss" to lease.loss?.name?.lowercase(),
    )
}

private fun Lease.kindWord() = if (names.size > 1) "multi_lock" else kindWord(kind)

/** Passes on what a hold tells; a re-entered one has been told under its first name. */
private fun watch(lease: Lease, name: String) {
    if (lease.holdCount > 1) return
    lease.onLost { write(mapOf("event" to "lost", "lease" to name, "reason" to it.name.lowercase(), "at_ns" to now())) }
    lease.onJeopardy { write(mapOf("event" to "jeopardy", "lease" to name, "at_ns" to now())) }
}

private fun keep(lease: Lease, args: Arguments): Map<String, Any?> {
    watch(lease, args.text("lease"))
    leases[args.text("lease")] = lease
    return view(lease)
}

private suspend fun within(args: Arguments): Any? {
    var seen: Any? = null
    lockOf(args).withLease(args.ms("wait_ms")) { lease ->
        watch(lease, args.text("lease"))
        seen = view(lease)
        when (args["body"]) {
            "fail" -> throw BodyError()
            "until_free" -> while (lockOf(args).isLocked()) delay(10.milliseconds)
            "until_lost" -> delay(Duration.INFINITE)
        }
    }
    return seen
}

private fun holder(info: HolderInfo?, since: Boolean): Map<String, Any?>? = info?.let {
    val who = mapOf("label" to it.label, "pid" to it.pid, "host" to it.host)
    if (since) who + ("since_ms" to it.sinceMs) else who
}

private fun inspection(seen: Inspection?): Map<String, Any?>? = seen?.let {
    mapOf(
        "kind" to kindWord(it.kind),
        "origin" to it.origin.name.lowercase(),
        "count" to it.holdCount,
        "token" to it.fencingToken,
        "ttl_left_ms" to it.ttlLeftMs,
        "owner" to holder(it.owner, true),
        "foreign_holder" to it.foreignHolder,
        "permits" to it.permits,
        "free" to it.free,
        "waiting" to it.waiting,
        "waiters" to it.waiters.map { waiter -> mapOf("client" to holder(waiter.client, false), "since_ms" to waiter.sinceMs) },
    )
}

@OptIn(ExperimentalStdlibApi::class)
private fun entries(found: List<LockEntry>): List<Any?> = found.associateBy { it.name.toHexString() }.toSortedMap().values.map {
    val text = it.name.decodeToString()
    val name = if (text.encodeToByteArray().contentEquals(it.name)) text else mapOf("hex" to it.name.toHexString())
    mapOf("name" to name, "waiting" to it.waiting) + inspection(it.inspection)!! + mapOf("waiting" to it.waiting)
}

private suspend fun list(args: Arguments): Any? {
    val client = found(clients, args.text("client"))
    args.int("limit")?.let { limit ->
        val page = client.list(args.bytes("pattern"), limit, args["cursor"] as String?)
        return mapOf("entries" to entries(page.entries), "next" to page.next)
    }
    val all = ArrayList<LockEntry>()
    var cursor: String? = null
    do {
        val page = client.list(args.bytes("pattern"), 100, cursor)
        all += page.entries
        cursor = page.next
    } while (cursor != null)
    return entries(all)
}

private suspend fun diagnose(args: Arguments): Any {
    val found = found(clients, args.text("client")).diagnose(args.bytes("name").decodeToString())
    val steps = found.findings.associate {
        it.step to mapOf(
            "server" to it.server, "severity" to it.severity.name.lowercase(), "detail" to it.detail, "todo" to it.todo,
            "error" to it.error?.let(ERRORS::getValue), "measured" to it.measured,
        )
    }
    return mapOf("severity" to found.severity.name.lowercase(), "grade" to gradeWord(found.grade), "steps" to steps)
}

private fun gradeWord(grade: Grade) = grade.name.split("_").joinToString("") { it.lowercase().replaceFirstChar(Char::uppercase) }

private fun permits(found: Permits?) = found?.let { mapOf("total" to it.total, "held" to it.held, "free" to it.free) }

private suspend fun act(op: String, args: Arguments): Any? {
    (args.keys - KNOWN).firstOrNull()?.let { throw DriverError("there is no argument $it") }
    val lease = { found(leases, args.text("lease")) }
    val client = { found(clients, args.text("client")) }
    return when (op) {
        "hello" -> mapOf(
            "protocol" to 1, "language" to "kotlin", "mode" to "coroutines", "pid" to ProcessHandle.current().pid(), "now_ns" to now(),
        )
        "client" -> null.also { clients[args.text("client")] = Client.connect(args.text("url").split(' '), clientOptions(args)) }
        "close" -> null.also { client().closeSuspending() }
        "stats" -> client().stats().run { mapOf("held" to held, "waiting" to waiting, "cleaning" to cleaning, "lost" to lost) }
        "acquire" -> keep(lockOf(args).acquire(args.ms("wait_ms")), args)
        "try_acquire" -> lockOf(args).tryAcquire()?.let { keep(it, args) }
        "cancel" -> null.also { requests[(args["request"] as Number).toLong()]?.cancel() }
        "attach" -> keep(lockOf(args).attach(args.text("proof")), args)
        "with" -> within(args)
        "is_locked" -> lockOf(args).isLocked()
        "permits" -> permits(lockOf(args).permits())
        "set_permits" -> permits(lockOf(args).setPermits(args.int("permits")!!))
        "inspect" -> inspection(client().inspect(args.bytes("name")))
        "list" -> list(args)
        "diagnose" -> diagnose(args)
        "force_release" -> client().forceRelease(args.bytes("name"), args["foreign"] == true)
        "check" -> view(lease())
        "extend" -> lease().run { extend(args.ms("ttl_ms")!!).let { view(this) } }
        "downgrade" -> lease().run { downgrade().let { view(this) } }
        "release" -> lease().release().name.lowercase()
        "detach" -> lease().detach()
        "wait_lost" -> lease().waitLost(args.ms("limit_ms")!!)?.name?.lowercase()
        "drop" -> null.also { leases.remove(args.text("lease"))?.release() }
        else -> throw DriverError("there is no operation $op")
    }
}

private suspend fun serve(id: Long, op: String, args: Arguments) {
    val from = now()
    val answer = try {
        val ok = act(op, args)
        mapOf("id" to id, "from_ns" to from, "to_ns" to now(), "ok" to ok)
    } catch (error: Throwable) {
        val to = now()
        val kind = when (error) {
            is OnelockException -> ERRORS.getValue(error.kind)
            is BodyError -> "Body"
            is CancellationException -> "Cancelled"
            else -> "Driver"
        }
        val message = if (kind == "Driver") error.stackTraceToString() else error.message
        mapOf("id" to id, "from_ns" to from, "to_ns" to to, "error" to mapOf("kind" to kind, "message" to message))
    }
    write(answer)
}

fun main() {
    // scenarios break servers on purpose
    java.util.logging.Logger.getLogger("onelock").level = java.util.logging.Level.OFF
    val scope = CoroutineScope(SupervisorJob() + Dispatchers.IO)
    val reader = thread(name = "reads requests") {
        for (line in generateSequence(::readLine)) {
            @Suppress("UNCHECKED_CAST")
            val request = Json.read(line) as Map<String, Any?>
            val id = (request["id"] as Number).toLong()
            @Suppress("UNCHECKED_CAST")
            val args = request["args"] as Arguments? ?: emptyMap()
            requests[id] = scope.launch(start = kotlinx.coroutines.CoroutineStart.LAZY) { serve(id, request["op"] as String, args) }
            requests[id]!!.start()
        }
    }
    reader.join()
    // without an orderly end: what is still held ends as it does when a process is killed
    Runtime.getRuntime().halt(0)
}
