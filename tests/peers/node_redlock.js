// node-redlock, on behalf of a test: the operations acquire, try_acquire and release of the driver protocol.
'use strict'

const { readFileSync } = require('node:fs')
const { join } = require('node:path')
const readline = require('node:readline')
const { default: Redis } = require('ioredis')
const { default: Redlock, ExecutionError } = require('redlock')
const { version } = JSON.parse(readFileSync(join(process.env.NODE_PATH, 'redlock', 'package.json'), 'utf8'))

const locks = new Map()
const clients = new Map()

// one address, or those of several independent servers with spaces between
function redlock(urls, retryCount) {
  const of = (url) => {
    if (!clients.has(url)) clients.set(url, new Redis(url))
    return clients.get(url)
  }
  return new Redlock(urls.split(' ').map(of), { retryCount, retryDelay: 50, retryJitter: 20 })
}

async function act(op, args) {
  if (op === 'hello') return `node-redlock ${version}`
  if (op === 'release') {
    await locks.get(args.lease).release()
    return null
  }
  const retries = op === 'acquire' ? Math.ceil(args.wait_ms / 50) : 0
  try {
    locks.set(args.lease, await redlock(args.url, retries).acquire([args.name], args.ttl_ms))
    return true
  } catch (error) {
    if (error instanceof ExecutionError) return false
    throw error
  }
}

async function run({ id, op, args }) {
  let result
  try {
    result = { ok: await act(op, args) }
  } catch (error) {
    result = { error: { kind: error.name, message: String(error) } }
  }
  process.stdout.write(JSON.stringify({ id, ...result }) + '\n')
}

readline
  .createInterface({ input: process.stdin })
  .on('line', (line) => run(JSON.parse(line)))
  .on('close', () => process.exit(0))
