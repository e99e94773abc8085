// A shop: two buyers of the last piece, in two processes, and one of them gets it. The address of the lock server is in
// $ONELOCK_URL; the stock is kept on the same server here, and may be anywhere.
import express from 'express'
import Redis from 'ioredis'
import { Client, FENCE_GUARD_SCRIPT, LockLostError, LockNotAcquiredError } from 'onelock'

/** The web application of one process. */
function shop(client, redis) {
  const app = express()

  app.post('/buy/:item', async (request, response) => {
    const { item } = request.params
    const bought = await client.lock(`buy:${item}`).using({ timeout: 2_000 }, async (_signal, lease) => {
      const [stock, fence] = [`stock:{${item}}`, `fence:{${item}}`]
      const left = Number(await redis.get(stock))
      if (left === 0) return false
      // the stock refuses a write of a process that was held up until somebody else had the lock
      const token = String(lease.fencingToken)
      const [written] = await redis.eval(FENCE_GUARD_SCRIPT, 2, stock, fence, token, left - 1)
      if (written !== 1) throw new Error('somebody else has the lock by now')
      return true
    })
    response.status(bought ? 200 : 410).json({ bought })
  })

  app.use((error, _request, response, next) => {
    if (error instanceof LockNotAcquiredError || error instanceof LockLostError) {
      response.status(503).set('Retry-After', '1').json({ error: error.code })
    } else {
      next(error)
    }
  })
  return app
}

// ---- the demonstration: two processes' worth of it, and more buyers than pieces

const redis = new Redis(process.env.ONELOCK_URL)
await redis.mset('stock:{lamp}', 5)
const clients = [await Client.connect(), await Client.connect()]
const servers = clients.map((client) => shop(client, redis).listen(0, '127.0.0.1'))
await Promise.all(servers.map((server) => new Promise((resolve) => server.on('listening', resolve))))

const buyers = Array.from({ length: 12 }, async (_, buyer) => {
  const { port } = servers[buyer % 2].address()
  const { status } = await fetch(`http://127.0.0.1:${port}/buy/lamp`, { method: 'POST' })
  return status
})
const statuses = await Promise.all(buyers)
const sold = statuses.filter((status) => status === 200).length
console.log(`12 buyers, 5 lamps: ${sold} sold, ${await redis.get('stock:{lamp}')} left`)
if (sold !== 5 || statuses.some((status) => status !== 200 && status !== 410)) process.exitCode = 1

for (const server of servers) server.close()
await Promise.all([...clients.map((client) => client.close()), redis.quit()])
