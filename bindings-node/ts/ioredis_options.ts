// The treatment of each option of ioredis: taken over, ignored, or refused. No option is ignored by accident.

/**
 * The treatment of an option.
 *
 * - `taken`: address, login or key prefix; `ioredis.ts` converts it
 * - `own`: it concerns the connections and commands of ioredis itself, not which server is used
 * - a function: returns why this value cannot be taken over, or `null` if it has no effect
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

/** Options of how ioredis sends commands. */
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

/** Options of `Cluster`; those in its `redisOptions` are options of `Redis`. */
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

/** A Sentinel address of `Redis`. */
export const SENTINEL: Record<string, Fate> = { family: 'taken', host: 'taken', port: 'taken' }

/** TLS options of Node.js. Others are refused. */
export const TLS: Record<string, Fate> = {
  ca: 'taken',
  cert: 'taken',
  host: 'taken',
  key: 'taken',
  // 1.2 and 1.3 are supported
  maxVersion: unless((value) => value === 'TLSv1.3', 'TLS 1.3 would be spoken with servers that have it'),
  minVersion: unless((value) => ['TLSv1', 'TLSv1.1', 'TLSv1.2'].includes(value as string), 'TLS 1.2 would be enough'),
  port: 'taken',
  rejectUnauthorized: 'taken',
  servername: 'taken',
}

/** Whether an option has a value. */
export function isSet(value: unknown): boolean {
  return value !== undefined && value !== null && value !== false
}
