package onelock.tests

import java.nio.file.Files
import java.nio.file.Path
import kotlin.time.Duration
import kotlin.time.Duration.Companion.microseconds
import kotlin.time.Duration.Companion.seconds
import kotlinx.coroutines.runBlocking
import onelock.Client
import onelock.ClientClosedException
import onelock.Credentials
import onelock.CredentialsProvider
import onelock.Grade
import onelock.InvalidArgumentException
import onelock.Kind
import onelock.Lock
import onelock.LockBusyException
import onelock.OnelockException
import onelock.Origin
import onelock.PermitsMismatchException
import onelock.Providers
import onelock.Release
import onelock.ServerUnavailableException
import onelock.UnsupportedException
import onelock.WrongKindException
import onelock.clientOptions
import onelock.errorRows
import onelock.exceptionClass
import onelock.lockOptions

val surface: Map<String, () -> Unit> = mapOf(
    "every kind of error has the class of the table" to {
        val table = Files.readString(Path.of(System.getProperty("onelock.errors")))
        val column = { name: String -> Regex("(?m)^$name = \"(\\w+)\"$").findAll(table).map { it.groupValues[1] }.toList() }
        val rows = errorRows()
        same("kinds", rows.map { it.name }, column("kind"))
        same("classes", rows.map { exceptionClass(it.kind).simpleName }, column("kotlin"))
        check("one root", rows.all { OnelockException::class.java.isAssignableFrom(exceptionClass(it.kind)) })
    },
    "what is wrong is refused before anything is sent" to {
        Client("redis://127.0.0.1:1").use { client ->
            throws<InvalidArgumentException>("a negative ttl") { client.lock("a", lockOptions { ttl = (-1).seconds }) }
            throws<InvalidArgumentException>("an endless ttl") { client.lock("a", lockOptions { ttl = Duration.INFINITE }).validate() }
            throws<InvalidArgumentException>("a negative wait") { client.lock("a").acquireBlocking((-1).microseconds) }
            throws<InvalidArgumentException>("an empty name") { client.lock("").acquireBlocking() }
            throws<InvalidArgumentException>("an owner of a plain lock") { client.lock("a", lockOptions { owner = "me" }).validate() }
            throws<InvalidArgumentException>("half a certificate") { Client("memory://", clientOptions { certFile = "x" }) }
            throws<InvalidArgumentException>("no locks") { Lock.of() }
            throws<InvalidArgumentException>("no addresses") { Client(emptyList()) }
            same("sent", client.stats().commandsSent, 0L)
        }
        val error = throws<InvalidArgumentException>("an address") { Client("redis://u:geheim@host:x") }
        check("no secret", "geheim" !in error.toString() && "geheim" !in Credentials("u", "geheim").toString())
        val options = clientOptions { sentinelPassword = "geheim" }
        check("no secret in options", "geheim" !in options.toString() && "geheim" !in options.native(null).toString())
    },
    "a client that was refused keeps no function for credentials" to {
        val before = Providers.count
        for (wrong in listOf(clientOptions { quarantine = (-1).seconds }, clientOptions { minReplicas = -1; certFile = "x" })) {
            wrong.credentials = CredentialsProvider { error("it is never asked") }
            throws<InvalidArgumentException>("an option") { Client("memory://", wrong) }
        }
        same("kept", Providers.count, before)
    },
    "each kind of lock does what it is for" to {
        withClient { client ->
            runBlocking {
                val owner = lockOptions { owner = "me" }
                val outer = client.reentrantLock(name(), owner).acquire()
                val inner = client.reentrantLock(outer.name, owner).tryAcquire()!!
                same("entered", inner.holdCount, 2L)
                same("inner", inner.release(), Release.RELEASED)
                check("still held", outer.isHeld)
                outer.close()

                val both = client.rwLock(name())
                val reader = both.read.acquire()
                both.read.acquire().close()
                same("a writer", both.write.tryAcquire(), null)
                reader.release()
                val writer = both.write.acquire()
                same("its kind", writer.kind, Kind.WRITE)
                writer.downgrade()
                both.read.tryAcquire()!!.close()
                writer.release()

                val fair = client.fairLock(name())
                fair.acquire(5.seconds).use { same("fair", fair.tryAcquire(), null) }

                val permits = client.semaphore(name(), 3)
                val two = permits.taking(2).acquire()
                same("free", permits.permits()!!.free, 1L)
                same("two more", permits.taking(2).tryAcquire(), null)
                two.release()
                same("set", permits.setPermits(5).total, 5L)
                throws<PermitsMismatchException>("another number") { permits.acquire() }
                throws<WrongKindException>("a name of another kind") {
                    client.lock(outer.name).acquire().use { client.fairLock(outer.name).acquire(1.seconds) }
                }

                val (one, other) = listOf(name(), name())
                client.multiLock(other, one).acquire().use { lease ->
                    same("names", lease.names, listOf(other, one))
                    check("tokens", lease.fencingTokenOf(one)!! > 0)
                    same("a member", client.lock(one).tryAcquire(), null)
                }
            }
        }
    },
    "a hold is handed to another process" to {
        withClient { client ->
            withClient { other ->
                val lease = client.lock(name()).acquireBlocking()
                val token = lease.fencingToken
                val proof = lease.detach()
                check("handed away", !lease.isHeld)
                val attached = other.lock(lease.name).attachBlocking(proof)
                same("the fencing token", attached.fencingToken, token)
                same("released", attached.releaseBlocking(), Release.RELEASED)
            }
        }
    },
    "what is held can be looked at" to {
        withClient(clientOptions { label = "kotlin"; inspectable = true }) { client ->
            runBlocking {
                val lease = client.lock(name()).acquire()
                val seen = client.inspect(lease.name)!!
                same("who", seen.owner?.label to seen.owner?.pid, "kotlin" to ProcessHandle.current().pid())
                same("whose", seen.origin to seen.kind, Origin.ONELOCK to Kind.MUTEX)
                same("token", seen.fencingToken, lease.fencingToken)
                check("locked", client.lock(lease.name).isLocked())
                same("listed", client.list(lease.name).entries.map { it.name.decodeToString() }, listOf(lease.name))
                check("released by force", client.forceRelease(lease.name) && !client.forceRelease(lease.name))
                same("free", client.inspect(lease.name), null)
                check("counted", client.stats().acquired == 1L && client.stats().wait.count == 1L)
                check("checked", client.check().server.isNotEmpty())
                check("diagnosed", client.diagnose(lease.name).findings.isNotEmpty())
            }
        }
    },
    "a client that could not be connected leaves no connection" to {
        val strict = clientOptions { minFencingGrade = Grade.STRICT; label = name() }
        throws<UnsupportedException>("a weaker server") { Client.connectBlocking(url, strict) }
        runBlocking { throws<UnsupportedException>("a weaker server") { Client.connect(url, strict) } }
        eventually("no connection") { !redis("CLIENT", "LIST").contains(strict.label!!) }
    },
    "a closed client refuses" to {
        val client = Client(url)
        val lease = client.lock(name()).acquireBlocking()
        client.close()
        client.close()
        check("lost", !lease.isHeld)
        throws<ClientClosedException>("an acquire") { client.lock("a").acquireBlocking() }
        runBlocking { throws<ClientClosedException>("an acquire") { client.lock("a").acquire() } }
    },
    "credentials come from a function" to {
        val refusing = CredentialsProvider { error("no ticket today") }
        Client(url, clientOptions { credentials = refusing }).use { client ->
            val error = throws<ServerUnavailableException>("an acquire") { client.lock(name()).acquireBlocking(1.seconds) }
            check("$error", "no ticket today" in error.message!!)
        }
    },
    "Java callers have the same" to { JavaCaller.run(url, name()) },
    "names are any bytes" to {
        withClient { client ->
            val name = byteArrayOf(0x6b, -1, 0) + name().encodeToByteArray()
            client.lock(name).acquireBlocking().use { check("its name", it.nameBytes.contentEquals(name)) }
            val error = throws<LockBusyException>("a body's exception") {
                client.lock(name).withLeaseBlocking { client.lock(name).acquireBlocking(Duration.ZERO) }
            }
            check("$error", "\\xff" in error.message!!)
        }
    },
)
