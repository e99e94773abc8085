// Where an ioredis object connects to, as an address and options of this package. The object itself is only looked at:
// nothing is ever sent through it.

import { invalid, UnsupportedError, worded } from './errors'
import type { ClientOptions } from './options'

/** What is read of an object of ioredis, `Redis` or `Cluster`. */
export interface IoRedis {
  /** What it was made with. */
  readonly options: object
  /** Closes its connections. */
  quit?(): Promise<unknown>
}

/** Where it connects to. */
export interface Place {
  address: string
  options: ClientOptions
}

/** The options of ioredis that say where a server is, and how to get in. */
interface Single {
  host?: string
  port?: number | string
  path?: string
  username?: string | null
  password?: string | null
  db?: number
  tls?: Tls
  keyPrefix?: string
  connectTimeout?: number
  commandTimeout?: number
  Connector?: unknown
  sentinels?: { host?: string; port?: number | string }[] | null
  name?: string | null
  role?: string
  sentinelUsername?: string | null
  sentinelPassword?: string | null
  enableTLSForSentinelMode?: boolean
}

interface Tls {
  rejectUnauthorized?: boolean
  servername?: string
  [option: string]: unknown
}

type Node = string | number | { host?: string; port?: number | string }

interface Grouped {
  isCluster?: boolean
  startupNodes?: Node[]
  options: { redisOptions?: Single; keyPrefix?: string }
}

const TRIED = 'make a Redlock'
const PORT = 6379
/** The limit that ioredis sets when its user has not. */
const DEFAULT_CONNECT_TIMEOUT = 10_000

function unsupported(detail: string): UnsupportedError {
  return new UnsupportedError(worded('Unsupported', TRIED, detail, undefined))
}

/** Where this client connects to. `own` are the options that its user gave for this package. */
export function placeOf(client: unknown, own: ClientOptions): Place {
  if (typeof client !== 'object' || client === null || typeof (client as IoRedis).options !== 'object') {
    throw invalid(TRIED, 'a client must be an object of ioredis, Redis or Cluster: its options say where the server is')
  }
  const group = client as Grouped
  return group.isCluster ? clusterPlace(group, own) : singlePlace((client as IoRedis).options as Single, own)
}

function singlePlace(from: Single, own: ClientOptions): Place {
  const options = optionsOf(from, own)
  if (from.Connector !== undefined && !from.sentinels) {
    throw unsupported('the client has a Connector of its own, which only ioredis can use')
  }
  if (from.sentinels) return { address: sentinelAddress(from), options }
  const db = from.db ?? 0
  if (from.path) {
    const path = from.path.split('/').map(encodeURIComponent).join('/')
    return { address: `unix://${userInfo(from)}${path}?db=${db}`, options }
  }
  return { address: `${scheme('redis', from.tls)}://${userInfo(from)}${hostPort(from)}/${db}`, options }
}

function sentinelAddress(from: Single): string {
  if (from.role === 'slave')
    throw invalid(TRIED, 'the client asks Sentinel for a replica; locks are kept on the master')
  if (!from.name) throw invalid(TRIED, 'the client names no master group: ioredis calls that option "name"')
  const query = new URLSearchParams()
  if (from.sentinelUsername) query.set('sentinel_username', from.sentinelUsername)
  if (from.sentinelPassword) query.set('sentinel_password', from.sentinelPassword)
  if (from.enableTLSForSentinelMode) query.set('sentinel_tls', 'true')
  const hosts = from.sentinels!.map((sentinel) => hostPort({ port: 26379, ...sentinel })).join(',')
  const path = `${encodeURIComponent(from.name)}/${from.db ?? 0}`
  const rest = String(query) === '' ? '' : `?${query}`
  return `${scheme('redis+sentinel', from.tls)}://${userInfo(from)}${hosts}/${path}${rest}`
}

function clusterPlace({ startupNodes, options }: Grouped, own: ClientOptions): Place {
  const inner = options.redisOptions ?? {}
  const hosts = (startupNodes ?? []).map(nodeAddress).join(',')
  if (hosts === '') throw invalid(TRIED, 'the cluster client names no startup nodes')
  const from = { ...inner, keyPrefix: options.keyPrefix ?? inner.keyPrefix ?? '' }
  return {
    address: `${scheme('redis+cluster', inner.tls)}://${userInfo(inner)}${hosts}`,
    options: optionsOf(from, own),
  }
}

function nodeAddress(node: Node): string {
  if (typeof node === 'number' || /^\d+$/.test(String(node))) return hostPort({ port: node as number })
  if (typeof node === 'object') return hostPort(node)
  return new URL(node.includes('://') ? node : `redis://${node}`).host
}

function hostPort({ host = '127.0.0.1', port = PORT }: { host?: string; port?: number | string }): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`
}

function userInfo({ username, password }: Single): string {
  if (!username && !password) return ''
  const secret = password ? `:${encodeURIComponent(password)}` : ''
  return `${encodeURIComponent(username ?? '')}${secret}@`
}

function scheme(plain: string, tls: Tls | undefined): string {
  return tls ? plain.replace('redis', 'rediss') : plain
}

function optionsOf(from: Single, own: ClientOptions): ClientOptions {
  const options: ClientOptions = { ...own }
  if (from.keyPrefix) options.prefix ??= from.keyPrefix
  if (from.connectTimeout !== DEFAULT_CONNECT_TIMEOUT) options.connectTimeout ??= from.connectTimeout
  options.requestTimeout ??= from.commandTimeout
  if (from.tls) {
    checkTls(from.tls, from.host, own)
    if (from.tls.rejectUnauthorized === false) options.tlsInsecure ??= true
  }
  return options
}

/** What cannot be taken over must not be left out in silence. */
function checkTls(tls: Tls, host: string | undefined, own: ClientOptions): void {
  const instead: Record<string, string | undefined> = { ca: own.caFile, cert: own.certFile, key: own.keyFile }
  for (const [option, file] of Object.entries(instead)) {
    if (tls[option] !== undefined && file === undefined) {
      throw unsupported(
        `the option tls.${option} of the client is no file; give { client: { ${option}File } } in settings`,
      )
    }
  }
  for (const option of ['pfx', 'checkServerIdentity', 'secureContext']) {
    if (tls[option] !== undefined) throw unsupported(`the option tls.${option} of the client cannot be taken over`)
  }
  if (tls.servername !== undefined && tls.servername !== host) {
    throw unsupported(
      `the option tls.servername of the client is not its host: connect to ${tls.servername} by that name`,
    )
  }
}
