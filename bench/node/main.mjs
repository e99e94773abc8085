// Measures the Node package against its peers, in one process and in turn, against one server; prints one table.
// How to read it: bench/README.md.
import { execFileSync, fork } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { createRequire } from 'node:module'
import { availableParallelism, cpus } from 'node:os'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import Redis from 'ioredis'
import { SIDES } from './sides.mjs'

const require = createRequire(import.meta.url)
const { start } = require('../../bindings-node/test/support/server.cjs')

const { values: options } = parseArgs({
  options: { quick: { type: 'boolean', default: false }, server: { type: 'string', default: 'redis-server-7.0' } },
})
const ROUNDS = options.quick ? 5 : 60
const CYCLES = options.quick ? 50 : 200
const BURST_MS = options.quick ? 50 : 300
const TASKS = 64
const WAITERS = 8
const HANDOVERS = options.quick ? 60 : 600

const at = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]
const sorted = (values) => [...values].sort((a, b) => a - b)
const median = (values) => at(sorted(values), 0.5)

function row(what, ours, theirs, ratios, unit) {
  const order = sorted(ratios)
  const ratio = `${at(order, 0.5).toFixed(2)} (${at(order, 0.25).toFixed(2)}-${at(order, 0.75).toFixed(2)})`
  console.log(`| ${what} | ${ours.toFixed(0)} ${unit} | ${theirs.toFixed(0)} ${unit} | ${ratio} |`)
}

/** Every side must send the same two requests as ours, where the figure is about the way to the socket. */
async function checkSame(port, sides) {
  const monitor = await new Redis({ port, host: '127.0.0.1' }).monitor()
  const seen = []
  monitor.on('monitor', (_time, args) => seen.push(args))
  const sent = []
  for (const side of ['onelock', 'ioredis']) {
    seen.length = 0
    await sides[side].cycle('same')
    await new Promise((resolve) => setTimeout(resolve, 50))
    sent.push(seen.filter((args) => args[0].toLowerCase().startsWith('eval')).map((args) => args.map((arg) => arg.replace(/[0-9a-f]{32}$/, '*').toLowerCase()).join(' ')))
  }
  monitor.disconnect()
  if (sent[0].length !== 2 || sent[0].join() !== sent[1].join()) {
    throw new Error(`the sides send different requests:\n${JSON.stringify(sent, null, 2)}`)
  }
}

async function block(side, cycles) {
  const times = new Float64Array(cycles)
  for (let round = 0; round < cycles; round += 1) {
    const before = process.hrtime.bigint()
    await side.cycle('bench-one')
    times[round] = Number(process.hrtime.bigint() - before) / 1000
  }
  return median(times)
}

async function sequential(sides, title) {
  const figures = Object.fromEntries(Object.keys(sides).map((name) => [name, []]))
  for (const side of Object.values(sides)) await block(side, 3 * CYCLES)
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const [name, side] of Object.entries(sides)) figures[name].push(await block(side, CYCLES))
  }
  for (const peer of Object.keys(sides).slice(1)) {
    const ratios = figures.onelock.map((ours, round) => ours / figures[peer][round])
    row(`${title}, onelock / ${peer}`, median(figures.onelock), median(figures[peer]), ratios, 'us')
  }
}

async function burst(side) {
  const end = process.hrtime.bigint() + BigInt(BURST_MS) * 1_000_000n
  const began = process.hrtime.bigint()
  let cycles = 0
  const task = async (name) => {
    while (process.hrtime.bigint() < end) {
      await side.cycle(name)
      cycles += 1
    }
  }
  await Promise.all(Array.from({ length: TASKS }, (_, index) => task(`bench-${index}`)))
  return cycles / (Number(process.hrtime.bigint() - began) / 1e9)
}

async function throughput(sides) {
  const figures = Object.fromEntries(Object.keys(sides).map((name) => [name, []]))
  for (const side of Object.values(sides)) await burst(side)
  for (let round = 0; round < Math.ceil(ROUNDS / 3); round += 1) {
    for (const [name, side] of Object.entries(sides)) figures[name].push(await burst(side))
  }
  for (const peer of Object.keys(sides).slice(1)) {
    const ratios = figures.onelock.map((ours, round) => ours / figures[peer][round])
    row(`${TASKS} tasks, onelock / ${peer}`, median(figures.onelock), median(figures[peer]), ratios, '/s')
  }
}

/** One process holds a lock and the others wait for it: from the call of release to the next grant, in microseconds. */
async function handover(port, side) {
  const name = `bench-${randomUUID()}`
  const worker = fileURLToPath(new URL('waiter.mjs', import.meta.url))
  const children = Array.from({ length: WAITERS + 1 }, () => fork(worker, [String(port), side, name], { stdio: 'inherit' }))
  if (side === 'blpop') {
    const first = new Redis({ port, host: '127.0.0.1' })
    await first.lpush(name, 'it is yours')
    first.disconnect()
  }
  const gaps = []
  await new Promise((resolve) => {
    let holder
    let granted
    for (const child of children) {
      child.on('message', (news) => {
        if (gaps.length === HANDOVERS) return
        if (news.granted) {
          granted = news.granted
          holder?.send('another one has it')
          holder = child
        } else if (gaps.push((granted - news.released) / 1000) === HANDOVERS) {
          resolve()
        }
      })
    }
  })
  for (const child of children) child.kill('SIGKILL')
  // the first ones are taken while processes still start
  return gaps.slice(WAITERS * 2)
}

async function handovers(port) {
  const peers = { 'redis-semaphore': 'redis-semaphore', blpop: 'BLPOP with ioredis' }
  const gaps = { onelock: [], 'redis-semaphore': [], blpop: [] }
  const ratios = { 'redis-semaphore': [], blpop: [] }
  for (let round = 0; round < (options.quick ? 1 : 3); round += 1) {
    const once = {}
    for (const side of Object.keys(gaps)) gaps[side].push(...(once[side] = await handover(port, side)))
    for (const peer of Object.keys(peers)) ratios[peer].push(median(once.onelock) / median(once[peer]))
  }
  for (const [peer, title] of Object.entries(peers)) {
    const what = `hand-over, ${WAITERS} waiting processes, onelock / ${title}`
    row(what, median(gaps.onelock), median(gaps[peer]), ratios[peer], 'us')
  }
}

function pin(pid, processors) {
  try {
    execFileSync('taskset', ['--all-tasks', '--cpu-list', '--pid', processors, String(pid)], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}

const server = await start(options.server)
try {
  const sides = {}
  for (const [name, make] of Object.entries(SIDES)) sides[name] = await make(server.port)
  for (const side of Object.values(sides)) await side.cycle('warm')
  await checkSame(server.port, sides)
  console.log(`${server.flavour}, Node.js ${process.version}, ${availableParallelism()} processors, ${cpus()[0]?.model.trim()}\n`)
  console.log('| what | onelock | peer | ratio (quartiles) |')
  console.log('|---|---|---|---|')
  await sequential(sides, 'one caller')
  await throughput(sides)
  if (pin(process.pid, '0') && pin(server.child.pid, '0')) {
    await sequential(sides, 'one caller, all on one processor')
    const every = `0-${availableParallelism() - 1}`
    const all = cpus().length > 1 ? `0-${cpus().length - 1}` : every
    pin(process.pid, all)
    pin(server.child.pid, all)
  }
  for (const side of Object.values(sides)) await side.end()
  await handovers(server.port)
} finally {
  await server.kill()
}
process.exit(0)
