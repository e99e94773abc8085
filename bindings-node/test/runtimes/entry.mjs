// What bundlers are given.
import { Client } from 'onelock'
import Redlock from 'onelock/redlock'

if (typeof Redlock.prototype?.using !== 'function') throw new Error('the default is not the class')
new Client('memory://').lock('x').using(() => console.log('good'))
