// Who is measured: each side makes a cycle, one acquire and one release of a lock of this name.
import { createHash, randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import Redis from 'ioredis'
import { Mutex } from 'redis-semaphore'

const require = createRequire(import.meta.url)
const { default: Redlock } = require('redlock')
export const { Client } = require('../../bindings-node')

const scripts = new URL('../../core/src/store/redis/command/scripts/', import.meta.url)

function script(name) {
  const text = readFileSync(new URL(name, scripts), 'utf8')
  return { text, sha: createHash('sha1').update(text).digest('hex') }
}

/** The library. */
async function onelock(port) {
  const client = new Client(`redis://127.0.0.1:${port}/`)
  return {
    cycle: async (name) => {
      const lease = await client.lock(name).acquire()
      await lease.release()
    },
    end: () => client.close(),
  }
}

/** The floor: the same scripts over one ioredis connection. It knows nothing of deadlines, renewal or lost replies. */
async function ioredis(port) {
  const redis = new Redis({ port, host: '127.0.0.1' })
  const acquire = script('acquire_lock.lua')
  const release = script('release.lua')
  await redis.script('LOAD', acquire.text)
  await redis.script('LOAD', release.text)
  return {
    cycle: async (name) => {
      const token = `onelock1:${randomBytes(16).toString('hex')}`
      const granted = await redis.evalsha(acquire.sha, 2, name, `onelock_fence:{${name}}`, token, 30000, 604800000)
      if (granted[1] !== 0) throw new Error(`not granted: ${granted}`)
      const released = await redis.evalsha(release.sha, 1, name, 'm', token, `onelock_channel:{${name}}`)
      if (released !== 1) throw new Error(`not released: ${released}`)
    },
    end: () => redis.disconnect(),
  }
}

async function redlock(port) {
  const redis = new Redis({ port, host: '127.0.0.1' })
  const locks = new Redlock([redis])
  return {
    cycle: async (name) => {
      const lock = await locks.acquire([name], 30000)
      await lock.release()
    },
    end: () => redis.disconnect(),
  }
}

async function redisSemaphore(port) {
  const redis = new Redis({ port, host: '127.0.0.1' })
  return {
    cycle: async (name) => {
      const mutex = new Mutex(redis, name, { lockTimeout: 30000 })
      await mutex.acquire()
      await mutex.release()
    },
    end: () => redis.disconnect(),
  }
}

export const SIDES = { onelock, ioredis, redlock, 'redis-semaphore': redisSemaphore }
