// The Node driver: carries out what the supervisor asks for, one line of JSON at a time, with a promise for each request.
// The protocol stands in tests/drivers/README.md.
import { createInterface } from 'node:readline'
import { Client, MultiLock, OnelockError } from '../../../bindings-node/dist/index.mjs'

/** The argument of each option, and the option. */
const LEASE = {
  ttl_ms: 'ttl',
  auto_renew: 'autoRenew',
  min_hold_ms: 'minHold',
  max_hold_ms: 'maxHold',
  lock_delay_ms: 'lockDelay',
  min_validity_ms: 'minValidity',
  fencing: 'fencing',
}
const LOCK = { ...LEASE, owner: 'owner' }
const CLIENT = {
  ...LEASE,
  prefix: 'prefix',
  drift_factor: 'driftFactor',
  min_fencing_grade: 'minFencingGrade',
  connect_timeout_ms: 'connectTimeout',
  request_timeout_ms: 'requestTimeout',
  close_timeout_ms: 'closeTimeout',
  unreachable_limit_ms: 'unreachableLimit',
  quarantine_ms: 'quarantine',
  label: 'label',
  inspectable: 'inspectable',
}
const WAITING = ['lease', 'wait_ms', 'limit_ms', 'proof', 'request', 'body']
const OTHERS = [
  'permits',
  'count',
  'client',
  'url',
  'kind',
  'name',
  'also',
  'foreign',
  'pattern',
  'limit',
  'cursor',
  ...WAITING,
]
const KNOWN = new Set([...OTHERS, ...Object.keys(CLIENT), ...Object.keys(LOCK)])

class DriverError extends Error {}
class BodyError extends Error {}

const clients = new Map()
const leases = new Map()
/** What cancels a waiting acquire, under the number of its request. */
const waiting = new Map()

/** The clock that all processes of the machine share, as far as it has not slept. Numbers carry 104 days exactly. */
const now = () => Number(process.hrtime.bigint())

const write = (line) => process.stdout.write(`${line}\n`)

function found(objects, what, name) {
  const object = objects.get(name)
  if (object === undefined) throw new DriverError(`there is no ${what} ${JSON.stringify(name)}`)
  return object
}

const bytes = (name) => (typeof name === 'object' && name !== null ? Buffer.from(name.hex, 'hex') : name)

function options(table, args) {
  const chosen = {}
  for (const [argument, option] of Object.entries(table)) {
    if (args[argument] !== undefined && args[argument] !== null) chosen[option] = bytes(args[argument])
  }
  return chosen
}

function lockOf(args) {
  const client = found(clients, 'client', args.client)
  const one = (name) => {
    const described = [bytes(name), options(LOCK, args)]
    if (args.kind === 'semaphore') {
      return client.semaphore(described[0], { ...described[1], permits: args.permits ?? undefined })
    }
    if (args.kind === 'read_lock') return client.rwLock(...described).read()
    if (args.kind === 'write_lock') return client.rwLock(...described).write()
    if (args.kind === 'fair_lock') return client.fairLock(...described)
    return args.kind === 'reentrant_lock' ? client.reentrantLock(...described) : client.lock(...described)
  }
  return args.also === undefined ? one(args.name) : MultiLock.of(one(args.name), one(args.also))
}

/** How many permits an acquire takes. */
const taking = ({ count }) => (count === undefined || count === null ? {} : { permits: count })

function view(lease) {
  const at_ns = now()
  const { held, remaining, name, kind, fencingToken, holdCount, loss } = lease
  return {
    at_ns,
    held,
    remaining_ms: remaining,
    name: Buffer.from(name).toString(),
    kind,
    token: fencingToken,
    count: holdCount,
    loss,
  }
}

/** Passes on what a hold tells; a re-entered one has been told under its first name. */
function watch(lease, name) {
  if (lease.holdCount > 1) return
  const tell = (event, reason) => write(JSON.stringify({ event, lease: name, reason, at_ns: now() }))
  lease.on('lost', (reason) => tell('lost', reason))
  lease.on('jeopardy', () => tell('jeopardy'))
}

function keep(lease, name) {
  watch(lease, name)
  leases.set(name, lease)
  return view(lease)
}

async function cancellable(id, call) {
  const controller = new AbortController()
  waiting.set(id, controller)
  try {
    return await call(controller.signal)
  } finally {
    waiting.delete(id)
  }
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
const lost = (signal) => new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }))

async function within(args, signal) {
  let seen
  await lockOf(args).using({ timeout: args.wait_ms, signal }, async (signal, lease) => {
    watch(lease, args.lease)
    seen = view(lease)
    if (args.body === 'fail') throw new BodyError('the body failed')
    while (args.body === 'until_free' && (await lockOf(args).isLocked())) await pause(10)
    if (args.body === 'until_lost' && !signal.aborted) await lost(signal)
  })
  return seen
}

async function waitLost({ lease, limit_ms }) {
  const { signal } = found(leases, 'lease', lease)
  if (!signal.aborted) {
    let timer
    const limit = new Promise((resolve) => {
      timer = setTimeout(resolve, limit_ms)
    })
    await Promise.race([lost(signal), limit])
    clearTimeout(timer)
  }
  return signal.aborted ? signal.reason.reason : null
}

function inspection(seen) {
  if (seen === null) return null
  const { kind, origin, owner, foreignHolder, holdCount, ttlLeft, fencingToken } = seen
  const waiters = seen.waiters.map(({ client, since }) => {
    return { client: client && { label: client.label, pid: client.pid, host: client.host }, since_ms: since.getTime() }
  })
  return {
    kind,
    origin,
    count: holdCount,
    token: fencingToken,
    ttl_left_ms: ttlLeft,
    foreign_holder: foreignHolder,
    permits: seen.permits,
    free: seen.free,
    waiting: seen.waiting,
    waiters,
    owner: owner && { label: owner.label, pid: owner.pid, host: owner.host, since_ms: owner.since.getTime() },
  }
}

/** All locks, each once, in the order of their names. */
function entries(found) {
  const hex = (name) => Buffer.from(name).toString('hex')
  const shown = ({ name, inspection: seen, waiting: number }) => {
    return { name: typeof name === 'string' ? name : { hex: hex(name) }, waiting: number, ...inspection(seen) }
  }
  const byName = new Map(found.map((entry) => [hex(entry.name), shown(entry)]))
  return [...byName.keys()].sort().map((name) => byName.get(name))
}

async function list({ client, pattern, limit, cursor }) {
  const from = found(clients, 'client', client)
  if (limit !== undefined) {
    const page = await from.list(bytes(pattern), { limit, cursor })
    return { entries: entries(page.entries), next: page.next }
  }
  const all = []
  for await (const entry of from.listing(bytes(pattern))) all.push(entry)
  return entries(all)
}

/** What a look at the servers found, with the last finding of each step. */
async function diagnose({ client, name }) {
  const { severity, grade, findings } = await found(clients, 'client', client).diagnose(bytes(name))
  const kind = (code) => code && code.replace('ERR_ONELOCK_', '').toLowerCase().replace(/(?:^|_)([a-z])/g, (_, c) => c.toUpperCase())
  const steps = findings.map(({ step, error, ...finding }) => [step, { ...finding, error: kind(error) }])
  return { severity, grade, steps: Object.fromEntries(steps) }
}

function stats({ client }) {
  const { held, waiting, cleaning, lost } = found(clients, 'client', client).stats()
  return { held, waiting, cleaning, lost }
}

const OPERATIONS = {
  hello: () => ({ protocol: 1, language: 'node', mode: 'promises', pid: process.pid, now_ns: now() }),
  async client(args) {
    clients.set(args.client, await Client.connect(args.url, options(CLIENT, args)))
    return null
  },
  async close({ client }) {
    await found(clients, 'client', client).close()
    return null
  },
  stats,
  async acquire(args, id) {
    const wait = (signal) => lockOf(args).acquire({ timeout: args.wait_ms ?? undefined, signal, ...taking(args) })
    return keep(await cancellable(id, wait), args.lease)
  },
  async try_acquire(args) {
    const lease = await lockOf(args).tryAcquire(taking(args))
    return lease && keep(lease, args.lease)
  },
  cancel({ request }) {
    waiting.get(request)?.abort()
    return null
  },
  attach: async (args) => keep(await lockOf(args).attach(args.proof), args.lease),
  with: (args, id) => cancellable(id, (signal) => within(args, signal)),
  permits: (args) => lockOf(args).permits(),
  set_permits: (args) => lockOf(args).setPermits(args.permits),
  is_locked: (args) => lockOf(args).isLocked(),
  inspect: async ({ client, name }) => inspection(await found(clients, 'client', client).inspect(bytes(name))),
  list,
  diagnose,
  force_release: ({ client, name, foreign }) => found(clients, 'client', client).forceRelease(bytes(name), { foreign }),
  check: ({ lease }) => view(found(leases, 'lease', lease)),
  async extend({ lease, ttl_ms }) {
    const held = found(leases, 'lease', lease)
    await held.extend(ttl_ms)
    return view(held)
  },
  async downgrade({ lease }) {
    const held = found(leases, 'lease', lease)
    await held.downgrade()
    return view(held)
  },
  release: ({ lease }) => found(leases, 'lease', lease).release(),
  detach: ({ lease }) => found(leases, 'lease', lease).detach(),
  wait_lost: waitLost,
  drop({ lease }) {
    // when the last reference is collected is not for a program to say
    leases.get(lease)?.release()
    leases.delete(lease)
    return null
  },
}

async function act(op, args, id) {
  const unknown = Object.keys(args).find((argument) => !KNOWN.has(argument))
  if (unknown !== undefined) throw new DriverError(`there is no argument ${unknown}`)
  if (!Object.hasOwn(OPERATIONS, op)) throw new DriverError(`there is no operation ${op}`)
  return OPERATIONS[op](args, id)
}

function kindOf(error) {
  if (error instanceof OnelockError) return error.kind
  if (error instanceof BodyError) return 'Body'
  return error?.name === 'AbortError' ? 'Cancelled' : 'Driver'
}

async function serve(line) {
  const { id, op, args = {} } = JSON.parse(line)
  const from_ns = now()
  let answer
  try {
    const ok = await act(op, args, id)
    answer = { id, from_ns, to_ns: now(), ok: ok ?? null }
  } catch (error) {
    const kind = kindOf(error)
    const message = kind === 'Driver' ? (error.stack ?? String(error)) : error.message
    answer = { id, from_ns, to_ns: now(), error: { kind, message } }
  }
  write(JSON.stringify(answer))
}

// that the server is made for tests is known; everything else that is warned of should be read
process.on('warning', (warning) => warning.code === 'ONELOCK_SERVER' || process.stderr.write(`${warning.stack}\n`))

createInterface({ input: process.stdin })
  .on('line', serve)
  .on('close', () => {
    // without an orderly end: what is still held ends as it does when a process is killed
    process.removeAllListeners('exit')
    process.exit(0)
  })
