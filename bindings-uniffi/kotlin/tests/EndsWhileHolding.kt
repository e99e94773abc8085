package onelock.tests

import kotlin.system.exitProcess
import kotlinx.coroutines.DelicateCoroutinesApi
import kotlinx.coroutines.GlobalScope
import kotlinx.coroutines.launch
import onelock.Client

private val client = Client(url)

/** Ends while it holds a lock, while a callback is registered, and while a coroutine waits. */
@OptIn(DelicateCoroutinesApi::class)
fun main(names: Array<String>) {
    val lease = client.lock(names[0]).acquireBlocking()
    lease.onLost {}
    println(lease.isHeld)
    kept = lease
    repeat(3) { GlobalScope.launch { runCatching { client.lock(names[0]).acquire() } } }
    eventually("they wait") { client.stats().waiting == 3L }
    exitProcess(0)
}

private var kept: onelock.Lease? = null
