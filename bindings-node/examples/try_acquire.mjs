// One look, no waiting: whoever comes second does something else. The address is in $ONELOCK_URL.
import { Client } from 'onelock'

const client = await Client.connect({ inspectable: true, label: 'first' })
const lock = client.lock('example:import')

const lease = await lock.tryAcquire()
if (lease === null) throw new Error('somebody else is at it already')

const second = await lock.tryAcquire()
if (second !== null) throw new Error('two at once')

const { owner } = await client.inspect('example:import')
console.log(`busy: "${owner.label}", process ${owner.pid}, has it since ${owner.since.toISOString()}`)
console.log(await lease.release())
await client.close()
