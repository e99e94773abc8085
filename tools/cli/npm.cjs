// tools/cli/npm.cjs COMMAND VERSION FOLDER: lays out the npm package onelock-cli, whose command is the program itself.
const { chmodSync, cpSync, mkdirSync, writeFileSync } = require('node:fs')
const { join } = require('node:path')

const [command, version, folder] = process.argv.slice(2)
const root = join(__dirname, '../..')
mkdirSync(join(folder, 'bin'), { recursive: true })
cpSync(command, join(folder, 'bin/onelock'))
chmodSync(join(folder, 'bin/onelock'), 0o755)
for (const name of ['LICENSE-MIT', 'LICENSE-APACHE', 'THIRD-PARTY-NOTICES.txt']) cpSync(join(root, name), join(folder, name))
cpSync(join(root, 'cli/README.md'), join(folder, 'README.md'))
const manifest = {
  name: 'onelock-cli',
  version,
  description: 'onelock, the command: run a command under a distributed lock, and see what is locked',
  license: 'MIT OR Apache-2.0',
  keywords: ['lock', 'distributed', 'redis', 'valkey', 'cron', 'flock'],
  bin: { onelock: 'bin/onelock' },
  os: [process.platform],
  cpu: [process.arch],
  files: ['bin', 'LICENSE-*', 'THIRD-PARTY-NOTICES.txt'],
}
writeFileSync(join(folder, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)
