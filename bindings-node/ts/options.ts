// The options of clients, locks and calls, and the checks of their types. The core checks limits.

import { types } from 'node:util'
import { FOR_EVER } from './codes'
import { invalid } from './errors'
import type { Values } from './native'

const { isUint8Array } = types

/** The grades of fencing tokens, from the weakest to the strongest. */
export type Grade = 'None' | 'BestEffort' | 'ClockBounded' | 'Strict'

/**
 * How releases of locks in a cluster are published.
 *
 * - `auto`: sharded channels where the cluster has them (7.0 and newer), else classic ones
 * - `classic`: classic channels, which every node forwards to all others
 * - `sharded`: sharded channels, which stay on the nodes of their slot
 * - `both`: both, for the time while clients are moved from one to the other
 */
export type Notify = 'auto' | 'classic' | 'sharded' | 'both'

/** The name of a lock: 1 to 512 bytes. A string means its UTF-8 bytes. */
export type LockName = string | Uint8Array

/** Options that a client sets for its locks, and that each lock may override. Durations in milliseconds. */
export interface LeaseOptions {
  // written by tools/options.py: lease
  /**
   * Length of a lease: how long others wait after a crash of the holder (10 ms to one year). Default: 30000.
   *
   * With renewal the work may take longer.
   */
  ttl?: number | undefined
  /**
   * Whether leases are renewed in the background, every third of the ttl, until they are released. Default: true.
   *
   * A lease that is not renewed ends after its ttl, unless it is extended.
   */
  autoRenew?: boolean | undefined
  /**
   * How long a lock stays taken at least, even if it is released earlier (at most the ttl). Default: 0.
   *
   * A job that tries once, with a `minHold` above the difference between the clocks, runs on only one of many machines
   * each time.
   */
  minHold?: number | undefined
  /**
   * The longest time a lease may be held; then renewal stops and the lease is lost (at least 1 ms). Default: no limit.
   *
   * It bounds a holder that hangs.
   */
  maxHold?: number | undefined
  /**
   * How much longer than the lease the key lives: others wait that much longer after a crash. Default: 0.
   *
   * A release is not delayed by it.
   */
  lockDelay?: number | undefined
  /**
   * How much of a lease must be left when its grant arrives (less than the ttl). Default: 0.
   *
   * A grant that arrives later is undone, and waiting goes on.
   */
  minValidity?: number | undefined
  /** Whether each grant draws a fencing token. Default: true. */
  fencing?: boolean | undefined
  // end of lease
}

/** Options of one lock. Those that are left out have the client's values. */
export interface LockOptions extends LeaseOptions {
  /**
   * The owner of a reentrant lock: acquires with equal owners, through one client, share one hold. Without it, the async
   * context is the owner inside `using`, and every other acquire has an owner of its own.
   */
  owner?: string | Owner | undefined
  /** @internal The renewal period, for tests. */
  renewEvery?: number | undefined
}

/** The options of a semaphore. */
export interface SemaphoreOptions extends Omit<LockOptions, 'owner'> {
  /** How many permits there are in all, 1 to 1024, the same in every program. Default: as many as are set. */
  permits?: number | undefined
}

/** User name and password of a connection. */
export interface Credentials {
  /** The user name; left out or empty: the server's default user. */
  username?: string | null | undefined
  /** The password or token. */
  password: string
}

/** Gives the credentials of a new connection, or the password of the server's default user. */
export type CredentialsProvider = () => Credentials | string | Promise<Credentials | string>

/** Options of a client. Durations in milliseconds. */
export interface ClientOptions extends LeaseOptions {
  // written by tools/options.py: client
  /**
   * The share of the ttl by which the clocks of server and holder may run apart (0 to 0.5). Default: 0.01.
   *
   * The holder's lease ends that much earlier than the key on the server, and 2 ms on top.
   */
  driftFactor?: number | undefined
  /**
   * Put before every name, once (at most 512 bytes). Default: none.
   *
   * It keeps the locks of several programs on one server apart, and lets an access rule name them.
   */
  prefix?: LockName | undefined
  /**
   * The weakest grade of fencing tokens: `None`, `BestEffort`, `ClockBounded` or `Strict`. Default: `None`.
   *
   * A server with a weaker grade is refused when the client connects.
   */
  minFencingGrade?: Grade | undefined
  /** Names this client in `CLIENT LIST` and in inspection (at most 128 bytes, no control characters). Default: none. */
  label?: string | undefined
  /**
   * Whether a hold stores label, process, host and time for inspection. Default: false.
   *
   * Everybody who may read the key can read them.
   */
  inspectable?: boolean | undefined
  /**
   * Names of warnings about the server that are not logged, such as `persistence replicas`. Default: none.
   *
   * A name stands in brackets at the end of its warning. Names are separated by spaces or commas.
   */
  acceptedWarnings?: string | undefined
  /** Time limit of making a connection, name resolution and TLS included (at least 1 ms). Default: 2000. */
  connectTimeout?: number | undefined
  /**
   * Time limit of one request (at least 1 ms). Default: 1000.
   *
   * A connection that is slower is closed.
   */
  requestTimeout?: number | undefined
  /** Time limit of closing the client (at least 1 ms). Default: 1000. */
  closeTimeout?: number | undefined
  /** How long an acquire without a time limit retries an unreachable server (at least 1 ms). Default: 30000. */
  unreachableLimit?: number | undefined
  /**
   * A function that gives user name and password of each new connection. Default: what the address says.
   *
   * It is for passwords that expire, such as the tokens of cloud services.
   *
   * An address with credentials is an error beside it. It is called on the event loop, anew for every connection to a
   * server, once more when the server refuses what it gave, and never for one that is open; Sentinels have
   * `sentinelPassword`. It has the rest of `connectTimeout` for its answer, so a loop that is blocked for longer keeps
   * connections from being made. When it throws, rejects or is late, the call fails with `ServerUnavailableError` and
   * the reason, and the next connection asks again. It does not keep the process alive.
   *
   * ```ts
   * new Client('rediss://cache.example.org', { credentials: async () => ({ username: 'billing', password: await token() }) })
   * ```
   */
  credentials?: CredentialsProvider | undefined
  /** File with the certificates of the trusted authorities, PEM, for TLS. Default: the system's. */
  caFile?: string | undefined
  /**
   * File with this client's certificate, PEM; goes with `keyFile`. Default: none.
   *
   * They are for servers that ask for them. Set both.
   */
  certFile?: string | undefined
  /**
   * File with this client's private key, PEM; goes with `certFile`. Default: none.
   *
   * They are for servers that ask for them. Set both.
   */
  keyFile?: string | undefined
  /**
   * Whether any certificate is accepted; for experiments only. Default: false.
   *
   * Anybody in between can then read and take locks. The client logs a warning.
   */
  tlsInsecure?: boolean | undefined
  /** How a cluster's releases are announced: `auto`, `classic`, `sharded` or `both`. Default: `auto`. */
  notify?: Notify | undefined
  /**
   * How many replicas must confirm a grant, with `WAIT`; a grant that fewer confirm is undone. Default: 0.
   *
   * The loss of a lock in a failover becomes less likely, but it is not excluded. Redlock, `file://` and `memory://`
   * refuse it.
   */
  minReplicas?: number | undefined
  /** Time limit of the confirmation by replicas (at least 1 ms). Default: 1000. */
  replicaTimeout?: number | undefined
  /** User name for the Sentinels; the one in the address is the master's. Default: their default user. */
  sentinelUsername?: string | undefined
  /** Password for the Sentinels; the one in the address is the master's. Default: none. */
  sentinelPassword?: string | undefined
  /** Whether connections to Sentinels use TLS, with the same certificate files. Default: false. */
  sentinelTls?: boolean | undefined
  /**
   * Redlock: time limit of one request to one server (at least 1 ms, at most the `requestTimeout`). Default: 200.
   *
   * A server that is slower counts as absent.
   */
  nodeTimeout?: number | undefined
  /**
   * Redlock: how long a server that restarted without its data does not vote. Default: twice the ttl, at least 60 s.
   *
   * It must be longer than any lease on these servers. 0 switches it off.
   */
  quarantine?: number | undefined
  // end of client
}

/** Options of {@link Client.forceRelease}. */
export interface ForceReleaseOptions {
  /**
   * Also deletes a string without a time to live, such as the lock of a client that uses `SET NX` alone. Any other string
   * is deleted as well, so be sure that the key is a lock. Default: false.
   */
  foreign?: boolean
}

/** Options of {@link Client.list}. */
export interface ListOptions {
  /** How many locks a page has, about: 1 to 10,000. Default: 100. */
  limit?: number | undefined
  /** The `next` of the page before. Left out: the first page. */
  cursor?: string | undefined
}

/** Options of waiting. */
export interface AcquireOptions {
  /**
   * How long to wait, in milliseconds. Left out: without limit. 0: one try, which fails with {@link LockBusyError}.
   */
  timeout?: number | undefined
  /**
   * Ends the wait: the promise rejects with the reason of the signal, and nothing is held. It has no effect on an acquire
   * that has resolved.
   */
  signal?: AbortSignal | undefined
}

let owners = 0

/** An owner of reentrant locks. It is equal only to itself. */
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
/** Its value is never shown. */
const secret: Check = (value) => (text(value) === null ? null : 'a string')
/** Nor is the value of this one. */
const provider: Check = (value) =>
  typeof value === 'function' ? null : 'a function that gives { username, password } or a password'
const HIDDEN = [secret, provider]
const owner: Check = (value) =>
  value instanceof Owner || (typeof value === 'string' && isWellFormed(value)) ? null : 'a string or an Owner'

const LEASE: Record<string, Check> = {
  // written by tools/options.py: checks of a lease
  ttl: ms,
  autoRenew: flag,
  minHold: ms,
  maxHold: ms,
  lockDelay: ms,
  minValidity: ms,
  fencing: flag,
  // end of checks of a lease
}

const LOCK: Record<string, Check> = { ...LEASE, owner, renewEvery: ms }

const CLIENT: Record<string, Check> = {
  ...LEASE,
  // written by tools/options.py: checks of a client
  driftFactor: share,
  prefix: named,
  minFencingGrade: grade,
  label: text,
  inspectable: flag,
  acceptedWarnings: text,
  connectTimeout: ms,
  requestTimeout: ms,
  closeTimeout: ms,
  unreachableLimit: ms,
  credentials: provider,
  caFile: text,
  certFile: text,
  keyFile: text,
  tlsInsecure: flag,
  notify: ways,
  minReplicas: count,
  replicaTimeout: ms,
  sentinelUsername: text,
  sentinelPassword: secret,
  sentinelTls: flag,
  nodeTimeout: ms,
  quarantine: ms,
  // end of checks of a client
}

/** Checks names and types of options, and drops those that are undefined. */
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
    // names of owners and `Owner` objects never collide
    values.owner = values.owner instanceof Owner ? values.owner.id : `=${values.owner}`
  }
  return values
}

const FORCE: Record<string, Check> = { foreign: flag }

/** Reads the option `foreign`. */
export function foreignToo(options: unknown, tried: string): boolean {
  return checked(FORCE, options, tried)?.foreign === true
}

const LIST: Record<string, Check> = { limit: count, cursor: text }

/** Which page of a listing. */
export function listValues(options: unknown): { limit: number; cursor: string | undefined } {
  const values = checked(LIST, options, 'list')
  const limit = (values?.limit as number | undefined) ?? 100
  return { limit, cursor: values?.cursor as string | undefined }
}

const ACQUIRE = ['timeout', 'signal']

/** The limits of waiting of one call. */
export interface Waiting {
  wait: number
  signal: AbortSignal | undefined
}

const NO_LIMIT: Waiting = { wait: FOR_EVER, signal: undefined }

/** Checks the options of waiting. */
export function waiting(options: AcquireOptions | undefined, tried: string, lock: () => string): Waiting {
  if (options === undefined) return NO_LIMIT
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

/** Checks an argument in milliseconds. */
export function milliseconds(value: unknown, what: string, tried: string, lock: string): number {
  const wanted = ms(value)
  if (wanted !== null) throw invalid(tried, `${what} must be ${wanted}, not ${shown(value)}`, lock)
  return value as number
}

/** Checks the type of a number of permits; the core knows its limits. */
export function permitsNumber(value: unknown, tried: string, lock: string): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 0xffffffff) return value
  throw invalid(tried, `permits must be a whole number from 1 to 1024, not ${shown(value)}`, lock)
}

function isName(value: unknown): value is LockName {
  return isUint8Array(value) || (typeof value === 'string' && isWellFormed(value))
}

/** Checks the type of a name. Bytes are copied, so that later changes do not affect the lock. */
export function lockName(value: unknown, tried: string, what = 'name'): LockName {
  if (typeof value === 'string') {
    if (isWellFormed(value)) return value
    throw invalid(tried, `the ${what} has half of a surrogate pair, which has no bytes in UTF-8; give a Uint8Array`)
  }
  if (isUint8Array(value)) return Uint8Array.from(value)
  throw invalid(tried, `the ${what} must be a string or a Uint8Array, not ${shown(value)}`)
}

const LONE_SURROGATE = /[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/

function isWellFormed(value: string): boolean {
  const native = (value as { isWellFormed?: () => boolean }).isWellFormed
  return native === undefined ? !LONE_SURROGATE.test(value) : native.call(value)
}

const NAMED: Record<string, string> = { '\t': '\\t', '\r': '\\r', '\n': '\\n', "'": "\\'", '"': '\\"', '\\': '\\\\' }

/** A name with unprintable bytes escaped. */
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

/** A value in a message, short and on one line. */
function shown(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.slice(0, 40))
  if (typeof value === 'number' || typeof value === 'boolean' || value === null) return String(value)
  if (typeof value === 'bigint') return `${value}n`
  return typeof value
}
