// What onelock/redlock makes of the objects that it is given: taken over exactly, or refused by name.
const assert = require('node:assert/strict')
const dns = require('node:dns')
const test = require('node:test')
const ts = require('typescript')
const Redis = require('ioredis')
const Redis6 = require('ioredis-6')
const nodeRedis = require('redis')
const { InvalidArgumentError, UnsupportedError } = require('onelock')
const { default: Redlock } = require('onelock/redlock')
const { placeOf } = require('../dist/ioredis.js')
const { CLUSTER, SENTINEL, SINGLE } = require('../dist/ioredis_options.js')

const VERSIONS = { ioredis: Redis, 'ioredis-6': Redis6 }
const open = []
test.after(() => {
  for (const redis of open) redis.disconnect()
})

function lazy(options, Class = Redis) {
  const redis = new Class({ lazyConnect: true, ...options })
  open.push(redis)
  return redis
}

function cluster(nodes, options, Class = Redis) {
  const redis = new Class.Cluster(nodes, { lazyConnect: true, ...options })
  open.push(redis)
  return redis
}

const refused = (client, about) =>
  assert.throws(
    () => placeOf(client, {}),
    (error) => {
      assert.ok(error instanceof UnsupportedError, String(error))
      assert.match(error.message, about)
      return true
    },
  )

/** The names of the options that a package declares. */
function declared(from) {
  const file = `${__dirname}/declared.ts`
  const text = `import type { ClusterOptions, RedisOptions, SentinelAddress } from '${from}'
    export declare const cluster: ClusterOptions, single: RedisOptions, sentinel: SentinelAddress`
  const options = { module: ts.ModuleKind.Node16, moduleResolution: ts.ModuleResolutionKind.Node16, types: ['node'] }
  const host = ts.createCompilerHost(options)
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.ES2022)
  const { getSourceFile, fileExists } = host
  host.getSourceFile = (name, ...rest) => (name === file ? source : getSourceFile(name, ...rest))
  host.fileExists = (name) => name === file || fileExists(name)
  const program = ts.createProgram([file], options, host)
  assert.deepEqual(program.getSemanticDiagnostics(source).map(String), [])
  const checker = program.getTypeChecker()
  const exported = checker.getExportsOfModule(checker.getSymbolAtLocation(source))
  const names = (symbol) => {
    const properties = checker.getPropertiesOfType(checker.getTypeOfSymbol(symbol)).map((each) => each.name)
    assert.ok(properties.length > 0, symbol.name)
    return properties
  }
  return Object.fromEntries(exported.map((symbol) => [symbol.name, names(symbol)]))
}

for (const [name, Class] of Object.entries(VERSIONS)) {
  test(`${name}: each of its options is known`, () => {
    const { cluster: clusters, single, sentinel } = declared(name)
    const missing = (names, table) => names.filter((option) => !Object.hasOwn(table, option))
    assert.deepEqual(missing(clusters, CLUSTER), [])
    assert.deepEqual(missing(single, SINGLE), [])
    assert.deepEqual(missing(sentinel, SENTINEL), [])
    // those with a default that are not declared
    assert.deepEqual(missing(Object.keys(lazy({}, Class).options), SINGLE), [])
    assert.deepEqual(missing(Object.keys(cluster([7000], {}, Class).options), CLUSTER), [])
  })

  test(`${name}: its defaults are taken over`, () => {
    assert.equal(placeOf(lazy({}, Class), {}).address, 'redis://localhost:6379/0')
    assert.equal(placeOf(cluster([7000], {}, Class), {}).address, 'redis+cluster://127.0.0.1:7000')
  })
}

test('an object that is not of ioredis is refused by name', () => {
  const client = nodeRedis.createClient({ url: 'redis://10.0.0.1:7000' })
  const others = [
    [client, /node-redis/],
    [nodeRedis.createCluster({ rootNodes: [{ url: 'redis://10.0.0.1:7000' }] }), /node-redis/],
    [nodeRedis.createClientPool({ url: 'redis://10.0.0.1:7000' }), /node-redis/],
    [nodeRedis.createSentinel({ name: 'm', sentinelRootNodes: [{ host: '10.0.0.1', port: 1 }] }), /node-redis/],
    [
      new (class FakeRedis {
        options = { host: 'h', port: 1, keyPrefix: '' }
      })(),
      /the class FakeRedis/,
    ],
    [{ options: lazy({}).options }, /some other object/],
    [{ ...cluster([7000]).options }, /some other object/],
    [new Map(), /the class Map/],
    ['redis://localhost', /not string/],
    [null, /not null/],
  ]
  for (const [other, about] of others) {
    assert.throws(
      () => new Redlock([other]),
      (error) => {
        assert.ok(error instanceof InvalidArgumentError, String(error))
        assert.match(error.message, about)
        assert.match(error.message, /an object of ioredis/)
        return true
      },
    )
  }
})

test('a class that is derived from Redis is one', () => {
  class Mine extends Redis {}
  assert.equal(placeOf(lazy({ port: 7 }, Mine), {}).address, 'redis://localhost:7/0')
})

test('what cannot be taken over is refused', () => {
  const map = { '10.0.0.1:6379': { host: 'h', port: 1 } }
  refused(cluster([7000], { natMap: map }), /natMap.*translated/)
  refused(cluster([7000], { natMap: () => null }), /natMap/)
  refused(lazy({ sentinels: [{ host: 'h' }], name: 'm', natMap: map }), /natMap/)
  refused(cluster([7000], { useSRVRecords: true }), /useSRVRecords/)
  refused(cluster([7000], { redisOptions: { db: 1 } }), /redisOptions.db/)
  refused(cluster([7000], { redisOptions: { readOnly: true } }), /redisOptions.readOnly/)
  refused(cluster([7000], { redisOptions: { later: 1 } }), /redisOptions.later.*does not know/)
  refused(cluster([7000], { later: 1 }), /option later/)
  refused(lazy({ later: 'x' }), /option later/)
  refused(lazy({ readOnly: true }), /readOnly/)
  refused(lazy({ host: 'db.example', family: 6 }), /family \(6\)/)
  refused(lazy({ sentinels: [{ host: 's.example', family: 4 }], name: 'm' }), /family \(4\)/)
  refused(lazy({ sentinels: [{ host: 's', password: 'x' }], name: 'm' }), /sentinels\[\]\.password/)
  refused(
    lazy({
      Connector: class {
        connect() {}
        disconnect() {}
      },
    }),
    /Connector/,
  )
  for (const option of [
    'pfx',
    'checkServerIdentity',
    'secureContext',
    'ALPNProtocols',
    'socket',
    'lookup',
    'ciphers',
  ]) {
    refused(lazy({ tls: { [option]: {} } }), new RegExp(`tls\\.${option}`))
  }
  refused(lazy({ tls: { host: 'other' } }), /tls\.host/)
  refused(lazy({ tls: { port: 1 } }), /tls\.port/)
  refused(lazy({ tls: { minVersion: 'TLSv1.3' } }), /tls\.minVersion/)
  refused(lazy({ path: '/run/x.sock', tls: {} }), /TLS over a socket/)
  const group = { sentinels: [{ host: 'h' }], name: 'm', enableTLSForSentinelMode: true, tls: {} }
  refused(lazy({ ...group, sentinelTLS: { ca: 'PEM' } }), /sentinelTLS\.ca/)
  refused(lazy({ ...group, sentinelTLS: { rejectUnauthorized: false } }), /differ/)
})

test('a startup node says nothing that the others would not be told', () => {
  refused(cluster([{ host: 'h', password: 'x' }]), /password.*redisOptions/)
  refused(cluster(['redis://me:pw@h']), /username.*redisOptions/)
  refused(cluster(['rediss://h']), /redisOptions\.tls/)
  refused(cluster([{ host: 'h', tls: {} }]), /option tls of a startup node/)
  refused(cluster(['redis://h?family=6']), /family/)
  const redisOptions = { username: 'me', password: 'pw', tls: {} }
  const place = placeOf(cluster(['rediss://me:pw@h:1', { host: '::1', password: 'pw', tls: {} }], { redisOptions }), {})
  assert.equal(place.address, 'rediss+cluster://me:pw@h:1,[::1]:6379')
})

test('a lookup that only hands on the name is none', () => {
  const nodes = [{ host: 'redis.example' }]
  const address = 'redis+cluster://redis.example:6379'
  assert.equal(placeOf(cluster(nodes, { dnsLookup: (host, done) => done(null, host) }), {}).address, address)
  assert.equal(placeOf(cluster(nodes, { dnsLookup: dns.lookup }), {}).address, address)
  refused(cluster(nodes, { dnsLookup: (_, done) => done(null, '10.0.0.1') }), /dnsLookup/)
  refused(cluster(nodes, { dnsLookup: (host, done) => setImmediate(done, null, host) }), /dnsLookup/)
})

test('what else is taken over', () => {
  const place = (options, Class) => placeOf(lazy(options, Class), {})
  assert.equal(place({ host: 'localhost', family: 4 }).address, 'redis://127.0.0.1:6379/0')
  assert.equal(place({ host: 'localhost', family: 6 }).address, 'redis://[::1]:6379/0')
  assert.equal(place({ host: '10.0.0.1', family: 4 }).address, 'redis://10.0.0.1:6379/0')
  assert.equal(place({ protocol: 2 }, Redis6).address, 'redis://localhost:6379/0?protocol=resp2')
  assert.equal(place({ connectionName: 'orders' }).label, 'orders')
  assert.equal(place({ natMap: {} }).address, 'redis://localhost:6379/0')
  assert.equal(
    place({ tls: { servername: 'h', host: 'h', minVersion: 'TLSv1.2' }, host: 'h' }).address,
    'rediss://h:6379/0',
  )
})

test('TLS through Sentinels is what ioredis makes of it', () => {
  const base = { sentinels: [{ host: 'h' }], name: 'm' }
  const address = (options) => placeOf(lazy({ ...base, ...options }), {}).address
  assert.equal(address({ tls: {} }), 'redis+sentinel://h:26379/m/0')
  assert.equal(address({ tls: {}, enableTLSForSentinelMode: true }), 'rediss+sentinel://h:26379/m/0')
  assert.equal(address({ sentinelTLS: {} }), 'redis+sentinel://h:26379/m/0?sentinel_tls=true')
  const both = { tls: {}, enableTLSForSentinelMode: true, sentinelTLS: {} }
  assert.equal(address(both), 'rediss+sentinel://h:26379/m/0?sentinel_tls=true')
})
