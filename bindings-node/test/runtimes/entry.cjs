// What bundlers are given, and what a compiler makes of an import.
const { Client } = require('onelock')
const { default: Redlock } = require('onelock/redlock')

if (typeof Redlock.prototype?.using !== 'function') throw new Error('the default is not the class')
new Client('memory://').lock('x').using(() => console.log('good'))
