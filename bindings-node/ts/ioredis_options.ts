// What becomes of each option of ioredis: taken over, of no concern here, or refused. None is left out in silence.

/**
 * What becomes of an option.
 *
 * - `taken`: it says where the server is, how to get in, or what a key is; `ioredis.ts` carries it over
 * - `own`: how ioredis treats connections and commands of its own; it does not change which server is asked or what for
 * - a function: why this value cannot be taken over; `null` when there is nothing to take over
 */
export type Fate = 'taken' | 'own' | ((value: unknown) => string | null)

const always = (why: string) => () => why
const unless = (fine: (value: unknown) => boolean, why: string) => (value: unknown) => (fine(value) ? null : why)
const isEmpty = (value: unknown) => typeof value === 'object' && value !== null && Object.keys(value).length === 0

const natMap = unless(
  isEmpty,
  "the servers' addresses would be translated, which only ioredis does; connect from where the servers' own addresses lead",
)
const readOnly = always('it asks replicas; locks are kept on masters')

/** What ioredis does with what it sends, and when. */
const COMMANDS: Record<string, Fate> = {
  autoPipeliningIgnoredCommands: 'own',
  enableAutoPipelining: 'own',
  enableOfflineQueue: 'own',
  enableReadyCheck: 'own',
  himportFieldsets: 'own',
  lazyConnect: 'own',
  maxScriptsCachingTime: 'own',
  scripts: 'own',
  showFriendlyErrorStack: 'own',
}

/** Options of `Redis`, in all versions of ioredis from 4 to 6. */
export const SINGLE: Record<string, Fate> = {
  ...COMMANDS,
  Connector: 'taken',
  autoResendUnfulfilledCommands: 'own',
  autoResubscribe: 'own',
  blockingTimeout: 'own',
  blockingTimeoutGrace: 'own',
  clientInfoTag: 'own',
  commandQueue: 'own',
  commandTimeout: 'taken',
  connectTimeout: 'taken',
  connectionName: 'taken',
  db: 'taken',
  disableClientInfo: 'own',
  disconnectTimeout: 'own',
  dropBufferSupport: 'own',
  enableTLSForSentinelMode: 'taken',
  failoverDetector: 'own',
  family: 'taken',
  host: 'taken',
  keepAlive: 'own',
  keyPrefix: 'taken',
  maxLoadingRetryTime: 'own',
  maxRetriesPerRequest: 'own',
  monitor: 'own',
  name: 'taken',
  natMap,
  noDelay: 'own',
  offlineQueue: 'own',
  password: 'taken',
  path: 'taken',
  port: 'taken',
  preferredSlaves: 'own',
  protocol: 'taken',
  readOnly,
  reconnectOnError: 'own',
  replyMapping: 'own',
  retryStrategy: 'own',
  role: 'taken',
  sentinelCommandTimeout: 'own',
  sentinelMaxConnections: 'own',
  sentinelPassword: 'taken',
  sentinelReconnectStrategy: 'own',
  sentinelRetryStrategy: 'own',
  sentinelTLS: 'taken',
  sentinelUsername: 'taken',
  sentinels: 'taken',
  socketTimeout: 'own',
  stringNumbers: 'own',
  tls: 'taken',
  updateSentinels: 'own',
  username: 'taken',
}

/** Options of `Cluster`; those in its `redisOptions` are of `Redis`. */
export const CLUSTER: Record<string, Fate> = {
  ...COMMANDS,
  clusterNodeRetryStrategy: 'own',
  clusterRetryStrategy: 'own',
  dnsLookup: 'taken',
  keyPrefix: 'taken',
  maxRedirections: 'own',
  natMap,
  redisOptions: 'taken',
  // only with useSRVRecords
  resolveSrv: 'own',
  retryDelayOnClusterDown: 'own',
  retryDelayOnFailover: 'own',
  retryDelayOnMoved: 'own',
  retryDelayOnTryAgain: 'own',
  // reads only: locks are kept on masters
  scaleReads: 'own',
  shardedSubscribers: 'own',
  slotsRefreshInterval: 'own',
  slotsRefreshTimeout: 'own',
  useSRVRecords: always('SRV records are looked up by ioredis only; give the names and ports of the nodes'),
}

/** One of the Sentinels that `Redis` asks. */
export const SENTINEL: Record<string, Fate> = { family: 'taken', host: 'taken', port: 'taken' }

/** What there is for TLS, the options of Node.js. What is not here is refused. */
export const TLS: Record<string, Fate> = {
  ca: 'taken',
  cert: 'taken',
  host: 'taken',
  key: 'taken',
  // 1.2 and 1.3 are spoken
  maxVersion: unless((value) => value === 'TLSv1.3', 'TLS 1.3 would be spoken with servers that have it'),
  minVersion: unless((value) => ['TLSv1', 'TLSv1.1', 'TLSv1.2'].includes(value as string), 'TLS 1.2 would be enough'),
  port: 'taken',
  rejectUnauthorized: 'taken',
  servername: 'taken',
}

/** Whether an option was set to anything. */
export function isSet(value: unknown): boolean {
  return value !== undefined && value !== null && value !== false
}
