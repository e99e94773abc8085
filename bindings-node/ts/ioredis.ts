// Converts the options of an ioredis object to an address and options of this package. Nothing is sent through the object.

import { lookup } from 'node:dns'
import { isIP } from 'node:net'
import { isDeepStrictEqual } from 'node:util'
import { invalid, type OnelockError, UnsupportedError, worded } from './errors'
import { CLUSTER, type Fate, isSet, SENTINEL, SINGLE, TLS } from './ioredis_options'
import type { ClientOptions } from './options'

/** The properties that are read from an ioredis object, `Redis` or `Cluster`. */
export interface IoRedis {
  /** Its options. */
  readonly options: object
  /** The state of its connections. */
  readonly status: string
  /** Closes its connections. */
  quit?(): Promise<unknown>
}

/** Its address and options for this package. */
export interface Place {
  address: string
  options: ClientOptions
  /** The name of its connections. */
  label: string | undefined
}

/** The options of ioredis for address and login. */
interface Single {
  host?: string
  port?: number | string
  path?: string
  family?: number
  username?: string | null
  password?: string | null
  db?: number
  tls?: Tls | true
  keyPrefix?: string
  connectTimeout?: number
  commandTimeout?: number
  connectionName?: string | null
  protocol?: number
  Connector?: unknown
  sentinels?: Host[] | null
  name?: string | null
  role?: string
  sentinelUsername?: string | null
  sentinelPassword?: string | null
  sentinelTLS?: Tls | true
  enableTLSForSentinelMode?: boolean
}

interface Host {
  host?: string
  port?: number | string
  family?: number
}

interface Tls extends Host {
  rejectUnauthorized?: boolean
  servername?: string
  [option: string]: unknown
}

type Node = string | number | Single

interface Grouped {
  startupNodes?: Node[]
  options: { redisOptions?: Single; keyPrefix?: string; dnsLookup?: unknown }
}

const TRIED = 'make a Redlock'
const PORT = 6379
/** The limit that ioredis uses by default. */
const DEFAULT_CONNECT_TIMEOUT = 10_000

function unsupported(detail: string): UnsupportedError {
  return new UnsupportedError(worded('Unsupported', TRIED, detail, undefined))
}

/**
 * Converts a client. `own` are the options for this package.
 *
 * @throws {InvalidArgumentError} for an object that is not from ioredis
 * @throws {UnsupportedError} for an option that cannot be taken over
 */
export function placeOf(client: unknown, own: ClientOptions): Place {
  if (isCluster(client)) return clusterPlace(client, own)
  if (isSingle(client)) return singlePlace(client.options, own)
  throw unknown(client)
}

/** Options that every `Redis` of ioredis has, set or not. */
const ALWAYS_SET = ['sentinels', 'natMap', 'keyPrefix', 'maxRetriesPerRequest', 'retryStrategy']
/** The same of `Cluster`. */
const ALWAYS_SET_IN_CLUSTERS = ['clusterRetryStrategy', 'scaleReads', 'maxRedirections', 'dnsLookup']

function isSingle(client: unknown): client is { options: Single } {
  return (
    has(client, ALWAYS_SET) && typeof (client.connector as { connect?: unknown } | undefined)?.connect === 'function'
  )
}

function isCluster(client: unknown): client is Grouped {
  return has(client, ALWAYS_SET_IN_CLUSTERS) && client.isCluster === true && Array.isArray(client.startupNodes)
}

function has(client: unknown, words: string[]): client is Record<string, unknown> {
  if (typeof client !== 'object' || client === null) return false
  const { options } = client as { options?: unknown }
  return typeof options === 'object' && options !== null && words.every((word) => word in options)
}

/** An object that only resembles one of ioredis could be connected to any server. */
function unknown(client: unknown): OnelockError {
  const detail = `a client must be an object of ioredis, Redis or Cluster, not ${called(client)}`
  return invalid(TRIED, `${detail}; for another client give its address to Client of "onelock"`)
}

function called(client: unknown): string {
  if (typeof client !== 'object' || client === null) return client === null ? 'null' : typeof client
  const { isOpen, sendCommand } = client as Record<string, unknown>
  if (isOpen !== undefined && typeof sendCommand === 'function') return 'one of node-redis (the package "redis")'
  const name = (client.constructor as { name?: string } | undefined)?.name ?? ''
  return name === '' || name === 'Object' ? 'some other object' : `an object of the class ${name}`
}

/** Refuses options that cannot be taken over. `whose` names their owner in the message. */
function check(options: object, table: Record<string, Fate>, whose: string): void {
  for (const [option, value] of Object.entries(options)) {
    if (!isSet(value)) continue
    const fate = Object.hasOwn(table, option) ? table[option]! : always
    const why = typeof fate === 'function' ? fate(value) : null
    if (why !== null) throw unsupported(`the option ${whose}${option} of the client cannot be taken over: ${why}`)
  }
}

const always = () => 'this version does not know it'

function singlePlace(from: Single, own: ClientOptions): Place {
  check(from, SINGLE, '')
  if (from.Connector && !from.sentinels) {
    throw unsupported('the client has a Connector of its own, which only ioredis can use')
  }
  if (from.sentinels) return sentinelPlace(from, own)
  const { options, label } = optionsOf(from, own)
  const query = queryOf(from)
  if (from.path) {
    const path = from.path.split('/').map(encodeURIComponent).join('/')
    if (from.tls) throw unsupported('the client speaks TLS over a socket in the file system')
    query.set('db', String(from.db ?? 0))
    return { address: `unix://${userInfo(from)}${path}${queryText(query)}`, options, label }
  }
  const where = `${scheme('redis', from.tls)}://${userInfo(from)}${hostPort(from)}/${from.db ?? 0}`
  return { address: where + queryText(query), options, label }
}

function sentinelPlace(from: Single, own: ClientOptions): Place {
  if (from.role === 'slave')
    throw invalid(TRIED, 'the client asks Sentinel for a replica; locks are kept on the master')
  if (!from.name) throw invalid(TRIED, 'the client names no master group: ioredis calls that option "name"')
  // ioredis uses TLS with the master only if both are set
  const tls = from.enableTLSForSentinelMode ? from.tls : undefined
  const { host: _host, port: _port, tls: _tls, ...rest } = from
  const { options, label } = optionsOf(tls === undefined ? rest : { ...rest, tls }, own)
  const query = queryOf(from)
  if (from.sentinelUsername) query.set('sentinel_username', from.sentinelUsername)
  if (from.sentinelPassword) query.set('sentinel_password', from.sentinelPassword)
  if (from.sentinelTLS) {
    checkTls(from.sentinelTLS, {}, own, 'sentinelTLS')
    if (tls && isInsecure(tls) !== isInsecure(from.sentinelTLS)) {
      throw unsupported('the options tls and sentinelTLS of the client differ in rejectUnauthorized')
    }
    if (isInsecure(from.sentinelTLS)) options.tlsInsecure ??= true
    query.set('sentinel_tls', 'true')
  }
  const hosts = from.sentinels!.map((sentinel) => {
    check(sentinel, SENTINEL, 'sentinels[].')
    return hostPort({ ...sentinel, port: sentinel.port ?? 26379, family: sentinel.family || (from.family ?? 0) })
  })
  const path = `${encodeURIComponent(from.name)}/${from.db ?? 0}`
  const where = `${scheme('redis+sentinel', tls)}://${userInfo(from)}${hosts.join(',')}/${path}`
  return { address: where + queryText(query), options, label }
}

function clusterPlace({ startupNodes, options }: Grouped, own: ClientOptions): Place {
  check(options, CLUSTER, '')
  const inner = options.redisOptions ?? {}
  check(inner, SINGLE, 'redisOptions.')
  if (inner.db)
    throw unsupported('the option redisOptions.db of the client cannot be taken over: a cluster has one database')
  if (inner.Connector) throw unsupported('the client has a Connector of its own, which only ioredis can use')
  const nodes = (startupNodes ?? []).map((node) => startupNode(node, inner))
  if (nodes.length === 0) throw invalid(TRIED, 'the cluster client names no startup nodes')
  for (const { host } of nodes) checkLookup(options.dnsLookup, host)
  const from = { ...inner, keyPrefix: options.keyPrefix || inner.keyPrefix || '' }
  const hosts = nodes.map((node) => hostPort({ ...node, tls: inner.tls } as Single)).join(',')
  const where = `${scheme('redis+cluster', inner.tls)}://${userInfo(inner)}${hosts}`
  return { address: where + queryText(queryOf(inner)), ...optionsOf(from, own) }
}

/** The options of a startup node; it may have none that the other nodes lack. */
function startupNode(node: Node, inner: Single): Host {
  const { host, port, db: _db, family, ...rest } = typeof node === 'object' ? node : spelled(node, inner)
  const mine = { username: rest.username || null, password: rest.password || null }
  const theirs = { ...inner, username: inner.username || null, password: inner.password || null } as Record<
    string,
    unknown
  >
  for (const [option, value] of Object.entries({ ...rest, ...mine })) {
    if (isSet(value) && !isDeepStrictEqual(value, theirs[option])) {
      const other = 'give it in redisOptions, for all nodes'
      throw unsupported(`the option ${option} of a startup node of the client cannot be taken over: ${other}`)
    }
  }
  return { host: host || '127.0.0.1', port: port || PORT, family: family || (inner.family ?? 0) }
}

function spelled(node: string | number, inner: Single): Single {
  if (typeof node === 'number' || /^\d+$/.test(node)) return { port: node }
  let url: URL
  try {
    url = new URL(node.includes('://') ? node : `redis://${node}`)
  } catch {
    throw invalid(TRIED, 'a startup node of the client is no address')
  }
  if (url.protocol === 'rediss:' && !inner.tls) {
    throw unsupported('a startup node of the client says rediss://, which ioredis heeds in redisOptions.tls only')
  }
  const host = decodeURIComponent(url.hostname).replace(/^\[|\]$/g, '')
  const words = { username: decodeURIComponent(url.username), password: decodeURIComponent(url.password) }
  return { ...Object.fromEntries(url.searchParams), ...words, host, port: url.port || PORT }
}

/** A custom lookup may return any address; one that only returns the name is allowed. */
function checkLookup(dnsLookup: unknown, host: string | undefined): void {
  if (!isSet(dnsLookup) || dnsLookup === lookup || typeof dnsLookup !== 'function' || isIP(host ?? '')) return
  let found: unknown
  try {
    dnsLookup(host, (_error: unknown, address: unknown) => {
      found = address
    })
  } catch {
    // another kind of function
  }
  if (found === host) return
  const instead = 'give the addresses that it finds as startup nodes'
  throw unsupported(`the option dnsLookup of the client cannot be taken over: only ioredis asks it; ${instead}`)
}

function hostPort({ host = '127.0.0.1', port = PORT, family, tls }: Host & { tls?: unknown }): string {
  let name = host
  if (family && !isIP(host)) {
    if (host !== 'localhost' || tls) {
      const instead = `with the name ${host}; give an address, or 0 for either family`
      throw unsupported(`the option family (${family}) of the client cannot be taken over ${instead}`)
    }
    name = Number(family) === 6 ? '::1' : '127.0.0.1'
  }
  return `${name.includes(':') ? `[${name}]` : name}:${port}`
}

function userInfo({ username, password }: Single): string {
  if (!username && !password) return ''
  const secret = password ? `:${encodeURIComponent(password)}` : ''
  return `${encodeURIComponent(username ?? '')}${secret}@`
}

function queryOf({ protocol }: Single): URLSearchParams {
  return new URLSearchParams(protocol === 2 ? { protocol: 'resp2' } : {})
}

function queryText(query: URLSearchParams): string {
  return String(query) === '' ? '' : `?${query}`
}

function scheme(plain: string, tls: Tls | true | undefined): string {
  return tls ? plain.replace('redis', 'rediss') : plain
}

function optionsOf(from: Single, own: ClientOptions): { options: ClientOptions; label: string | undefined } {
  const options: ClientOptions = { ...own }
  if (from.keyPrefix) options.prefix ??= from.keyPrefix
  if (from.connectTimeout !== DEFAULT_CONNECT_TIMEOUT) options.connectTimeout ??= from.connectTimeout
  options.requestTimeout ??= from.commandTimeout
  if (from.tls) {
    checkTls(from.tls, from, own, 'tls')
    if (isInsecure(from.tls)) options.tlsInsecure ??= true
  }
  return { options, label: from.connectionName || undefined }
}

function isInsecure(tls: Tls | true): boolean {
  return tls !== true && tls.rejectUnauthorized === false
}

/** Options of certificates are not guessed. */
function checkTls(tls: Tls | true, { host, port }: Host, own: ClientOptions, whose: string): void {
  if (tls === true) return
  check(tls, TLS, `${whose}.`)
  const instead: Record<string, string | undefined> = { ca: own.caFile, cert: own.certFile, key: own.keyFile }
  for (const [option, file] of Object.entries(instead)) {
    if (isSet(tls[option]) && file === undefined) {
      const where = `give { client: { ${option}File } } in settings`
      throw unsupported(`the option ${whose}.${option} of the client is no file; ${where}`)
    }
  }
  const places: [string, unknown, unknown][] = [
    ['servername', tls.servername, host],
    ['host', tls.host, host],
    ['port', tls.port, port],
  ]
  for (const [option, value, expected] of places) {
    if (isSet(value) && value !== expected) {
      throw unsupported(`the option ${whose}.${option} of the client is not its ${option === 'port' ? option : 'host'}`)
    }
  }
}
