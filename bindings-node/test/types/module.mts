// What programs may write, and what they may not: read by the compiler only. The same as common.cts, as an ES module.
import {
  type AcquireOptions,
  Client,
  type CredentialsProvider,
  type ErrorCode,
  type Grade,
  type Inspection,
  type Kind,
  type Lease,
  type Lock,
  LockLostError,
  type LockNotAcquiredError,
  LockTimeoutError,
  type LossReason,
  OnelockError,
  Owner,
  type Release,
  type Stats,
} from 'onelock'

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
function expect<_T extends true>(): void {}

const client: Client = await Client.connect('redis://localhost', {
  ttl: 10_000,
  prefix: 'shop:',
  minFencingGrade: 'Strict',
})
new Client({ label: 'x' })
new Client('redis://h', { credentials: async () => ({ username: 'u', password: 'p' }) })
new Client('redis://h', { credentials: () => 'p' })
const provider: CredentialsProvider = () => ({ password: 'p' })
new Client('redis://h', { credentials: provider })
// @ts-expect-error: a password is a text
new Client('redis://h', { credentials: () => 5 })
new Client(['redis://a', 'redis://b'])
const options: AcquireOptions = { timeout: 5, signal: AbortSignal.timeout(5) }
const lock: Lock = client.lock('orders:42', { ttl: 1000, autoRenew: false })
client.lock(new Uint8Array([1]))
client.reentrantLock('x', { owner: new Owner() })
client.reentrantLock('x', { owner: 'worker-7' })

const lease = await lock.acquire(options)
expect<Same<typeof lease, Lease>>()
expect<Same<typeof lease.fencingToken, number | null>>()
expect<Same<typeof lease.signal, AbortSignal>>()
expect<Same<typeof lease.loss, LossReason | null>>()
expect<Same<typeof lease.fencingGrade, Grade>>()
expect<Same<typeof lease.kind, Kind | 'multi_lock'>>()
const maybe = await lock.tryAcquire()
expect<Same<typeof maybe, Lease | null>>()
const released = await lease.release()
expect<Same<typeof released, Release>>()
const used = await lock.using(async (signal, inner) => {
  expect<Same<typeof signal, AbortSignal>>()
  expect<Same<typeof inner, Lease>>()
  return 7
})
expect<Same<typeof used, number>>()
const plain = await lock.using({ timeout: 5 }, () => 'now')
expect<Same<typeof plain, string>>()
const seen: Inspection | null = await client.inspect('x')
const stats: Stats = client.stats()
lease.on('lost', (reason: LossReason, error: LockLostError) => [reason, error.reason])
lease.once('jeopardy', () => {})

async function scope(): Promise<void> {
  await using held = await lock.acquire()
  await using whole = client
  held.held
  whole.stats()
}

try {
  await scope()
} catch (error) {
  if (error instanceof LockTimeoutError) {
    const code: ErrorCode = error.code
    const base: LockNotAcquiredError = error
  }
  if (error instanceof LockLostError) {
    const reason: LossReason | null = error.reason
  }
  if (error instanceof OnelockError) error.causes.map((cause) => cause.length)
}

// @ts-expect-error no such option
client.lock('x', { tll: 5 })
// @ts-expect-error a number is no name
client.lock(7)
// @ts-expect-error a try does not wait
await lock.tryAcquire({ timeout: 5 })
// @ts-expect-error nobody else makes leases
lease.held = false
// @ts-expect-error no such grade
new Client('redis://localhost', { minFencingGrade: 'strict' })
// @ts-expect-error there is no such event
lease.on('found', () => {})
// @ts-expect-error milliseconds are numbers
await lease.extend('5s')
