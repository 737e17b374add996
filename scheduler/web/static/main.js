import { start } from "./page.js";

start();
