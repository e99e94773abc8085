// worker_threads: each has its own clients, and may end at any instant.
const assert = require('node:assert/strict')
const { once } = require('node:events')
const { join } = require('node:path')
const test = require('node:test')
const { Worker } = require('node:worker_threads')
const { setUp } = require('./support/clients.cjs')
const programs = require('./support/programs.cjs')
const { until } = require('./support/server.cjs')

const { at, connect, fresh } = setUp(test)
const root = JSON.stringify(join(__dirname, '..'))

function worker(source) {
  const text = `
    const { parentPort, workerData } = require('node:worker_threads')
    const { Client } = require(${root})
    const client = new Client(${JSON.stringify(at.server.url)})
    ${source}`
  return new Worker(text, { eval: true })
}

const exists = (name) => at.server.send('EXISTS', name)

test('a worker uses locks, and excludes the main thread', async () => {
  const name = fresh()
  const lease = await connect().lock(name).acquire()
  const it = worker(`
    client.lock('${name}').acquire().then(async (lease) => {
      parentPort.postMessage(lease.fencingToken)
      await lease.release()
    })`)
  // the last message and the end can come in one turn of the event loop
  const [told, ended] = [once(it, 'message'), once(it, 'exit')]
  await once(it, 'online')
  await new Promise((resolve) => setTimeout(resolve, 100))
  await lease.release()
  const [token] = await told
  assert.ok(token > lease.fencingToken)
  const [code] = await ended
  assert.equal(code, 0)
})

test('a worker that ends without closing releases what it held', async () => {
  const name = fresh()
  const it = worker(`client.lock('${name}').acquire().then((lease) => { globalThis.lease = lease })`)
  const [code] = await once(it, 'exit')
  assert.equal(code, 0)
  assert.equal(await exists(name), 0)
})

test('terminated while it holds: the lock is released', async () => {
  const name = fresh()
  const it = worker(`
    client.lock('${name}').acquire().then((lease) => {
      lease.on('lost', () => {})
      parentPort.postMessage('held')
      setInterval(() => {}, 1000)
    })`)
  await once(it, 'message')
  await it.terminate()
  await until(async () => (await exists(name)) === 0, 'the end of the hold')
})

test('terminated while it waits: it never gets the lock', async () => {
  const name = fresh()
  const client = connect()
  const lease = await client.lock(name).acquire()
  const it = worker(`
    client.lock('${name}').acquire()
    const timer = setInterval(() => {
      if (client.stats().waiting === 1) { clearInterval(timer); parentPort.postMessage('waiting') }
    }, 2)`)
  await once(it, 'message')
  await it.terminate()
  await lease.release()
  const next = await client.lock(name).acquire({ timeout: 5000 })
  await next.release()
  assert.equal(await exists(name), 0)
})

test('terminated in a loop that never ends, with many calls under way', async () => {
  const name = fresh()
  const it = worker(`
    for (let index = 0; index < 50; index += 1) client.lock('${name}-' + index).acquire()
    parentPort.postMessage('begun')
    for (;;);`)
  await once(it, 'message')
  await until(async () => (await at.server.send('KEYS', `${name}-*`)).length === 50, 'the grants')
  await it.terminate()
  await until(async () => (await at.server.send('KEYS', `${name}-*`)).length === 0, 'the end of the holds')
})

test('workers come and go at any instant, and the process stays sound', async () => {
  // in a process of its own: a crash must be seen as one
  const ended = await programs.run(
    at.server.url,
    `
    const { Worker } = require('node:worker_threads')
    const text = \`
      const { Client } = require(${root.replace(/\\/g, '\\\\')})
      const client = new Client('\${url}')
      async function go(name) {
        for (;;) {
          const lease = await client.lock(name, { ttl: 1000 }).acquire()
          lease.signal
          await lease.release()
        }
      }
      for (let index = 0; index < 8; index += 1) go('${fresh()}-' + index % 3)\`
    async function one(index) {
      for (let round = 0; round < 8; round += 1) {
        const worker = new Worker(text, { eval: true })
        worker.on('error', (error) => say('error ' + error.stack))
        await new Promise((resolve) => worker.once('online', resolve))
        await pause(Math.random() * 120)
        await worker.terminate()
      }
    }
    Promise.all([one(0), one(1), one(2)]).then(async () => {
      // the main thread never loaded anything before: now it does, after all those workers
      const { Client } = require(${root})
      const client = new Client(url)
      await (await client.lock('main').acquire({ timeout: 5000 })).release()
      say('sound')
    })`,
    { flags: ['--unhandled-rejections=strict'], limit: 60_000, loaded: false },
  )
  assert.deepEqual([ended.code, ended.signal, ended.err, ended.out], [0, null, '', 'sound\n'])
  await until(async () => (await at.server.send('KEYS', 'name-*')).length === 0, 'the end of all holds')
})

test('a worker that has the package to itself', async () => {
  // the native module is loaded by a worker only, and the process goes on after it
  const ended = await programs.run(
    at.server.url,
    `
    const { Worker } = require('node:worker_threads')
    const text = \`
      const { Client } = require(${root.replace(/\\/g, '\\\\')})
      const client = new Client('\${url}')
      client.lock('${fresh()}').acquire().then(() => setInterval(() => {}, 1000))\`
    async function main() {
      for (let round = 0; round < 3; round += 1) {
        const worker = new Worker(text, { eval: true })
        await new Promise((resolve) => worker.once('online', resolve))
        await pause(150)
        await worker.terminate()
        await pause(50)
      }
      say('sound')
    }
    main()`,
    { loaded: false },
  )
  assert.deepEqual([ended.code, ended.err, ended.out], [0, '', 'sound\n'])
})
