// Work that takes longer than the ttl: leases are renewed in the background, also while the event loop is blocked.
// The address is in $ONELOCK_URL.
import { Client } from 'onelock'

const client = await Client.connect()

const lease = await client.lock('example:video', { ttl: 500 }).acquire()
const end = Date.now() + 1_500
while (Date.now() < end) {
  // nothing else runs in this process meanwhile
}
if (!lease.held) throw new Error('the lease was lost')
console.log(`still held after three times its ttl, ${Math.round(lease.remaining)} ms left`)
await lease.release()

// a lease that is not renewed ends after its ttl, unless it is extended
const fixed = await client.lock('example:slot', { ttl: 500, autoRenew: false }).acquire()
await fixed.extend(60_000)
console.log(`extended by hand, ${Math.round(fixed.remaining / 1_000)} s left`)
await fixed.release()
await client.close()
