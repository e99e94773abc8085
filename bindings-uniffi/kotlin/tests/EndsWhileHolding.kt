package onelock.tests

import onelock.Client

private val client = Client(url)

/** Ends while it holds a lock, and while a callback is registered. */
fun main(names: Array<String>) {
    val lease = client.lock(names[0]).acquireBlocking()
    lease.onLost {}
    println(lease.isHeld)
    kept = lease
}

private var kept: onelock.Lease? = null
