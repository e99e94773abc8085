// The options of clients, locks and calls, and whether what was given has the right type. Limits are the core's affair.

import { types } from 'node:util'
import { FOR_EVER } from './codes'
import { invalid } from './errors'
import type { Values } from './native'

const { isUint8Array } = types

/** How strong the fencing tokens of a store are, from the weakest to the strongest. */
export type Grade = 'None' | 'BestEffort' | 'ClockBounded' | 'Strict'

/**
 * How releases of locks in a cluster are announced and heard.
 *
 * - `auto`: sharded channels where the cluster has them (7.0 and newer), else classic ones
 * - `classic`: classic channels, which every node repeats to every other
 * - `sharded`: sharded channels, which stay on the nodes of their slot
 * - `both`: both at once, for a while in which some clients know the one way and some the other
 */
export type Notify = 'auto' | 'classic' | 'sharded' | 'both'

/** What a lock is locked under: 1 to 512 bytes. A string means its UTF-8 bytes. */
export type LockName = string | Uint8Array

/** Options that a client gives its locks as defaults, and that each lock may set for itself. Durations in milliseconds. */
export interface LeaseOptions {
  /**
   * The length of a lease, from 10 ms to one year. Default: 30000.
   *
   * With renewal this is how long others wait after a crash of the holder; the work may take longer.
   */
  ttl?: number | undefined
  /** Whether leases are renewed in the background, every third of the ttl, until they are released. Default: true. */
  autoRenew?: boolean | undefined
  /**
   * How long the lock stays taken at least, counted from the start of the hold and at most the ttl. Default: 0.
   *
   * A lease that is given back earlier, in whatever way, leaves the key standing for the rest of that time, nobody's. With
   * `tryAcquire` only one of many machines runs each tick of a job, although their clocks differ.
   */
  minHold?: number | undefined
  /**
   * How long a lease may be held at most. After that it is lost with the reason `max_hold`. Default: no limit.
   *
   * Bounds a holder that hangs: renewal runs in the background and would go on for ever.
   */
  maxHold?: number | undefined
  /**
   * How much longer than the lease the key lives on the server: after an unclean end the next holder waits that much
   * longer. Default: 0.
   */
  lockDelay?: number | undefined
  /** How much of a lease must be left when its grant arrives; a later one is given back. Default: 0. */
  minValidity?: number | undefined
  /** Whether grants carry a fencing token. Default: true. */
  fencing?: boolean | undefined
}

/** Options of one lock. What is left out is the client's. */
export interface LockOptions extends LeaseOptions {
  /**
   * Who re-enters: acquires of a reentrant lock with equal owners, through one client, share one hold. Only for
   * reentrant locks. Without it, `using` makes the async context the owner, and every other acquire is its own.
   */
  owner?: string | Owner | undefined
  /** @internal The renewal period, for tests. */
  renewEvery?: number | undefined
}

/** Who logs in on a connection. */
export interface Credentials {
  /** The user; left out or empty: the server's default user. */
  username?: string | null | undefined
  /** The password, or the token that stands for it. */
  password: string
}

/** Gives the credentials of a new connection, or the password of the server's default user. */
export type CredentialsProvider = () => Credentials | string | Promise<Credentials | string>

/** Options of a client. Durations in milliseconds. */
export interface ClientOptions extends LeaseOptions {
  /** What is put before every name, once: 512 bytes at most. Default: nothing. */
  prefix?: LockName | undefined
  /** The share of the ttl by which the clocks of server and holder may run apart, 0 to 0.5. Default: 0.01. */
  driftFactor?: number | undefined
  /** How strong the server's fencing tokens must be: connecting to a weaker one is refused. Default: `None`, any. */
  minFencingGrade?: Grade | undefined
  /** Time limit of making a connection, name resolution and TLS included. Default: 2000. */
  connectTimeout?: number | undefined
  /** Time limit of one request. Default: 1000. */
  requestTimeout?: number | undefined
  /** Time limit of `close`. Default: 1000. */
  closeTimeout?: number | undefined
  /** How long an acquire without a bound puts up with a server that cannot be reached. Default: 30000. */
  unreachableLimit?: number | undefined
  /**
   * Redlock: how long one server may take for one request before it counts as absent; from 1 to `requestTimeout`.
   * Default: 200.
   */
  nodeTimeout?: number | undefined
  /**
   * Redlock: how long a server that was started anew without its data does not vote; longer than any lease there. 0: it
   * votes at once. Default: the larger of a minute and twice the ttl.
   */
  quarantine?: number | undefined
  /**
   * How many replicas must confirm a grant before it counts, with `WAIT`. Default: 0, none.
   *
   * A grant that fewer confirm within `replicaTimeout` is given back, and waiting goes on. It makes the loss of a lock in
   * a failover less likely and does not exclude it.
   */
  minReplicas?: number | undefined
  /** How long replicas may take to confirm a grant. Default: 1000. */
  replicaTimeout?: number | undefined
  /** How releases of locks in a cluster are announced and heard. Default: `auto`. */
  notify?: Notify | undefined
  /**
   * Who gives user name and password of each new connection, for services whose passwords are tokens that end after a
   * while. Default: what the address says, which is an error beside a function.
   *
   * Called on the event loop, anew for every connection to a server and never for one that is open; Sentinels have
   * `sentinelPassword`. It has the rest of `connectTimeout` for its answer, so a loop that is blocked for longer keeps
   * connections from being made. When it throws, rejects or is late, the call fails with `ServerUnavailableError` and the
   * reason, and the next connection asks again. It does not keep the process alive.
   *
   * ```ts
   * new Client('rediss://cache.example.org', { credentials: async () => ({ username: 'billing', password: await token() }) })
   * ```
   */
  credentials?: CredentialsProvider | undefined
  /** The user that Sentinels know, if they have users of their own. Default: their default user. */
  sentinelUsername?: string | undefined
  /** The password that Sentinels ask for; the one in the address is the master's. Default: none. */
  sentinelPassword?: string | undefined
  /** Whether Sentinels are spoken to over TLS, with the same certificate files. Default: false. */
  sentinelTls?: boolean | undefined
  /** Free text that names this client in the server's `CLIENT LIST` and in inspection; 128 bytes at most. */
  label?: string | undefined
  /** Whether holds tell label, process id, host and time to `inspect`. Default: false. */
  inspectable?: boolean | undefined
  /** Warnings about the server that are not to be told, by name: `persistence replicas`. Default: none. */
  acceptedWarnings?: string | undefined
  /** A file with the certificates of the authorities to believe, PEM, for `rediss://`. Default: the system's. */
  caFile?: string | undefined
  /** A file with this client's certificate, PEM. Goes with `keyFile`. */
  certFile?: string | undefined
  /** A file with this client's private key, PEM. Goes with `certFile`. */
  keyFile?: string | undefined
  /** Whether to believe any certificate. For experiments only: anybody in between can read and take locks. */
  tlsInsecure?: boolean | undefined
}

/** Options of {@link Client.forceRelease}. */
export interface ForceReleaseOptions {
  /**
   * A string without a time to live is a lock, too: that of a client that does `SET NX` alone. Any other string goes as
   * well, so only for whoever is sure. Default: false.
   */
  foreign?: boolean
}

/** Options of waiting. */
export interface AcquireOptions {
  /**
   * How long to wait, in milliseconds. Left out: as long as it takes. 0: one try, which fails with
   * {@link LockBusyError}.
   */
  timeout?: number | undefined
  /**
   * Ends the waiting: the promise rejects with the signal's own reason, and nothing is held. An acquire that has
   * resolved stays resolved.
   */
  signal?: AbortSignal | undefined
}

let owners = 0

/** Who re-enters a reentrant lock. Equal to nobody but itself. */
export class Owner {
  /** @internal */
  readonly id: string

  constructor() {
    owners += 1
    this.id = `#${owners}`
  }
}

type Check = (value: unknown) => string | null

const ms: Check = (value) => {
  if (typeof value !== 'number') return 'a number of milliseconds'
  return Number.isFinite(value) && value >= 0 ? null : 'a finite number of milliseconds, 0 or more'
}
const flag: Check = (value) => (typeof value === 'boolean' ? null : 'true or false')
const text: Check = (value) => (typeof value === 'string' && isWellFormed(value) ? null : 'a string')
const share: Check = (value) => (typeof value === 'number' && value >= 0 ? null : 'a number from 0 to 0.5')
const named: Check = (value) => (isName(value) ? null : 'a string or a Uint8Array')
const grade: Check = (value) =>
  ['None', 'BestEffort', 'ClockBounded', 'Strict'].includes(value as string)
    ? null
    : "'None', 'BestEffort', 'ClockBounded' or 'Strict'"
const ways: Check = (value) =>
  ['auto', 'classic', 'sharded', 'both'].includes(value as string) ? null : "'auto', 'classic', 'sharded' or 'both'"
const count: Check = (value) =>
  Number.isInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 32 ? null : 'a whole number, 0 or more'
/** Never shown, whatever it is. */
const secret: Check = (value) => (text(value) === null ? null : 'a string')
/** Neither is what stands in its place. */
const provider: Check = (value) =>
  typeof value === 'function' ? null : 'a function that gives { username, password } or a password'
const HIDDEN = [secret, provider]
const owner: Check = (value) =>
  value instanceof Owner || (typeof value === 'string' && isWellFormed(value)) ? null : 'a string or an Owner'

const LEASE: Record<string, Check> = {
  ttl: ms,
  autoRenew: flag,
  minHold: ms,
  maxHold: ms,
  lockDelay: ms,
  minValidity: ms,
  fencing: flag,
}

const LOCK: Record<string, Check> = { ...LEASE, owner, renewEvery: ms }

const CLIENT: Record<string, Check> = {
  ...LEASE,
  prefix: named,
  driftFactor: share,
  minFencingGrade: grade,
  connectTimeout: ms,
  requestTimeout: ms,
  closeTimeout: ms,
  unreachableLimit: ms,
  label: text,
  nodeTimeout: ms,
  quarantine: ms,
  minReplicas: count,
  replicaTimeout: ms,
  notify: ways,
  sentinelUsername: text,
  sentinelPassword: secret,
  sentinelTls: flag,
  credentials: provider,
  inspectable: flag,
  acceptedWarnings: text,
  caFile: text,
  certFile: text,
  keyFile: text,
  tlsInsecure: flag,
}

/** Options whose names are known and whose types are right, without those that are left out. */
function checked(table: Record<string, Check>, options: unknown, tried: string, lock?: string): Values | undefined {
  if (options === undefined) return undefined
  if (typeof options !== 'object' || options === null) {
    throw invalid(tried, `options must be an object, not ${shown(options)}`, lock)
  }
  let values: Values | undefined
  for (const [key, value] of Object.entries(options)) {
    if (value === undefined) continue
    const check = Object.hasOwn(table, key) ? table[key] : undefined
    if (check === undefined) {
      throw invalid(tried, `there is no option "${key}"; there are: ${Object.keys(table).join(', ')}`, lock)
    }
    const wanted = check(value)
    if (wanted !== null)
      throw invalid(
        tried,
        `${key} must be ${wanted}, not ${HIDDEN.includes(check) ? typeof value : shown(value)}`,
        lock,
      )
    values ??= {}
    values[key] = value
  }
  return values
}

/** A client's options, as the native module takes them. */
export function clientValues(options: unknown): Values {
  const values = checked(CLIENT, options, 'make a client') ?? {}
  if (typeof values.prefix === 'string') values.prefix = Buffer.from(values.prefix)
  return values
}

/** A lock's options, as the native module takes them; `undefined` when there are none. */
export function lockValues(options: unknown, lock: string): Values | undefined {
  const values = checked(LOCK, options, 'describe a lock', lock)
  if (values?.owner !== undefined) {
    // named owners and made ones never meet
    values.owner = values.owner instanceof Owner ? values.owner.id : `=${values.owner}`
  }
  return values
}

const FORCE: Record<string, Check> = { foreign: flag }

/** Whether a string without a time to live is to be taken for a lock. */
export function foreignToo(options: unknown, tried: string): boolean {
  return checked(FORCE, options, tried)?.foreign === true
}

const ACQUIRE = ['timeout', 'signal']

/** What a call waits for. */
export interface Waiting {
  wait: number
  signal: AbortSignal | undefined
}

const PATIENT: Waiting = { wait: FOR_EVER, signal: undefined }

/** Options of waiting, checked. */
export function waiting(options: AcquireOptions | undefined, tried: string, lock: () => string): Waiting {
  if (options === undefined) return PATIENT
  if (typeof options !== 'object' || options === null) {
    throw invalid(tried, `options must be an object such as { timeout: 5000 }, not ${shown(options)}`, lock())
  }
  for (const key of Object.keys(options)) {
    if (!ACQUIRE.includes(key)) {
      throw invalid(tried, `there is no option "${key}"; there are: ${ACQUIRE.join(', ')}`, lock())
    }
  }
  const { timeout, signal } = options
  if (signal !== undefined && !isSignal(signal)) {
    throw invalid(tried, `signal must be an AbortSignal, not ${shown(signal)}`, lock())
  }
  if (timeout === undefined || timeout === Number.POSITIVE_INFINITY) return { wait: FOR_EVER, signal }
  const wanted = ms(timeout)
  if (wanted !== null) throw invalid(tried, `timeout must be ${wanted}, not ${shown(timeout)}`, lock())
  return { wait: timeout, signal }
}

function isSignal(value: unknown): value is AbortSignal {
  const signal = value as AbortSignal | null
  return typeof signal === 'object' && typeof signal?.aborted === 'boolean' && 'addEventListener' in signal
}

/** Milliseconds that are an argument by themselves. */
export function milliseconds(value: unknown, what: string, tried: string, lock: string): number {
  const wanted = ms(value)
  if (wanted !== null) throw invalid(tried, `${what} must be ${wanted}, not ${shown(value)}`, lock)
  return value as number
}

function isName(value: unknown): value is LockName {
  return isUint8Array(value) || (typeof value === 'string' && isWellFormed(value))
}

/** A name, checked for its type. Bytes are copied: who changes theirs later does not change the lock. */
export function lockName(value: unknown, tried: string): LockName {
  if (typeof value === 'string') {
    if (isWellFormed(value)) return value
    throw invalid(tried, 'the name has half of a surrogate pair, which has no bytes in UTF-8; give a Uint8Array')
  }
  if (isUint8Array(value)) return Uint8Array.from(value)
  throw invalid(tried, `the name must be a string or a Uint8Array, not ${shown(value)}`)
}

const LONE_SURROGATE = /[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/

function isWellFormed(value: string): boolean {
  const native = (value as { isWellFormed?: () => boolean }).isWellFormed
  return native === undefined ? !LONE_SURROGATE.test(value) : native.call(value)
}

const NAMED: Record<string, string> = { '\t': '\\t', '\r': '\\r', '\n': '\\n', "'": "\\'", '"': '\\"', '\\': '\\\\' }

/** A name for people: bytes that are not printable are escaped. */
export function printable(name: LockName): string {
  const bytes = typeof name === 'string' ? Buffer.from(name) : name
  let out = ''
  for (const byte of bytes.subarray(0, 512)) {
    const char = String.fromCharCode(byte)
    const named = NAMED[char]
    if (named !== undefined) out += named
    else if (byte >= 0x20 && byte < 0x7f) out += char
    else out += `\\x${byte.toString(16).padStart(2, '0')}`
  }
  return out
}

/** A value for people, short and on one line. */
function shown(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.slice(0, 40))
  if (typeof value === 'number' || typeof value === 'boolean' || value === null) return String(value)
  if (typeof value === 'bigint') return `${value}n`
  return typeof value
}
