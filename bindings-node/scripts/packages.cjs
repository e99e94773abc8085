// scripts/packages.cjs FOLDER: lays out what is published: FOLDER/onelock, the package that people install, and a package
// for each platform of npm/targets.json, FOLDER/linux-x64-gnu ..., which npm chooses as optional dependencies. The native
// modules themselves are put in by tools/node/dist.sh.
const { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } = require('node:fs')
const { join } = require('node:path')
const targets = require('../npm/targets.json')

const folder = process.argv[2]
if (folder === undefined) throw new Error('which folder?')
const root = join(__dirname, '..')
const { scripts: _scripts, devDependencies: _tools, ...manifest } = JSON.parse(readFileSync(join(root, 'package.json')))

function lay(name, content, files) {
  const to = join(folder, name)
  rmSync(to, { recursive: true, force: true })
  mkdirSync(to, { recursive: true })
  writeFileSync(join(to, 'package.json'), `${JSON.stringify(content, null, 2)}\n`)
  for (const [from, as] of files) cpSync(from, join(to, as), { recursive: true })
}

const text = (name) => [join(root, '..', name), name]
const licences = ['LICENSE-MIT', 'LICENSE-APACHE'].map(text)
const notices = 'THIRD-PARTY-NOTICES.txt'
const names = Object.keys(targets)
const optionalDependencies = Object.fromEntries(names.map((name) => [`@onelock/${name}`, manifest.version]))
lay('onelock', { ...manifest, files: [...manifest.files, 'LICENSE-*'], optionalDependencies }, [
  [join(root, 'dist'), 'dist'],
  [join(root, 'README.md'), 'README.md'],
  ...licences,
])

for (const [name, { os, cpu, libc }] of Object.entries(targets)) {
  const main = `onelock.${name}.node`
  const content = {
    name: `@onelock/${name}`,
    version: manifest.version,
    description: `The native module of onelock for ${name}`,
    license: manifest.license,
    engines: manifest.engines,
    os: [os],
    cpu: [cpu],
    ...(libc === undefined ? {} : { libc: [libc] }),
    main,
    files: [main, 'LICENSE-*', notices],
  }
  lay(name, content, [...licences, text(notices)])
}
