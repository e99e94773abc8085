// Waits for a lock, works, and releases it, from CommonJS. The address is in $ONELOCK_URL.
const { Client } = require('onelock')

async function main() {
  const client = await Client.connect()
  const lease = await client.lock('example:orders:43').acquire({ timeout: 5_000 })
  try {
    console.log(`the order is ours for ${Math.round(lease.remaining)} ms, and is renewed until it is released`)
  } finally {
    console.log(await lease.release())
  }
  await client.close()
}

main().catch((error) => {
  console.error(error)
  process.exitCode = 1
})
