"""Game characters: what they wear and wield."""


def listed(text: str) -> list:
    return [item.strip() for item in text.replace("\n", " ").split(",") if item.strip()]


ARMOR = listed("""
leather, chainmail, plate, studded leather, scale mail, bone armor, bronze plate, dragon scale, padded cloth, hide
armor, ring mail, mithril shirt, steel cuirass, wooden shield, silk robe, iron breastplate, fur cloak, obsidian plate,
crystal mail, shadow cloak, ranger coat, spiked plate, golden armor, wicker vest, elven mail, dwarven plate, turtle
shell, feather cape, stone skin, thorn vest, chain mail, plate armor, leather armor, plate mail, heavy plate, light leather, steel plate,
full plate, half plate, mage robes, wizard robe, cloth robe, robes, tunic, leather tunic, leather vest, leather jerkin, gambeson, brigandine,
breastplate, cuirass, hauberk, iron armor, steel armor, bronze armor, silver armor, diamond armor, dragon armor, dragonscale, dragonhide,
dragon plate, lamellar armor, splint mail, banded mail, bear hide, wolf pelt, wolf fur, bearskin, cloak, hooded cloak, black cloak, rags,
travel clothes, heavy armor, light armor, medium armor, magic cloak, enchanted robe, iron plate, iron mail, copper scales, tower shield,
round shield, buckler, kite shield, iron shield, ebony armor, glass armor, orcish plate, elven cloak, elven chain, mithril, mithril mail,
mithril armor, adamant plate, titanium suit, power armor, space suit, kevlar vest, exosuit, cyber suit, snakeskin, crocodile hide, hardened leather,
boiled leather, quilted jacket, wool coat, battle robe, monk robe, ceremonial armor, knight armor, guard uniform, none
""")

WEAPONS = listed("""
sword, axe, mace, spear, bow, crossbow, dagger, halberd, war hammer, sling, staff, whip, trident, scythe, katana,
rapier, battle axe, long bow, throwing knife, flail, morning star, short sword, lance, quarterstaff, war scythe, fire
wand, ice staff, bone club, silver dagger, iron fist, chain blade, glaive, pike, sabre, cutlass, blowpipe, boomerang,
great sword, hand axe, thunder rod, longsword, longbow, shortbow, short bow, broadsword, greatsword, greataxe, warhammer, claymore, scimitar,
wand, magic wand, oak staff, wooden staff, wizard staff, club, spiked club, hammer, knife, twin daggers, dual blades, poisoned dagger, javelin,
machete, saber, falchion, hatchet, throwing axe, shuriken, nunchaku, kunai, musket, pistol, rifle, laser rifle, plasma gun, blaster, shotgun, cannon,
hunting bow, elven bow, composite bow, recurve bow, repeating crossbow, heavy crossbow, iron sword, steel sword, silver sword, golden sword, rusty sword,
flaming sword, magic sword, bastard sword, two-handed sword, obsidian blade, shadow blade, frost blade, runic blade, curved blade, stiletto, dirk, sickle,
pitchfork, harpoon, net, maul, cudgel, bo staff, battle staff, crystal staff, spell book, orb, scepter, lute, fists, brass knuckles, claws, slingshot,
double-bladed axe, dwarven axe, bearded axe, pickaxe, partisan, poleaxe, stone hammer, thunder hammer, lightning spear, bone spear, moon blade
""")

ROLES = listed("""warrior, archer, wizard, rogue, paladin, bard, monk, hunter, druid, knight, witch, ranger, healer, pirate, smith, mage, sorcerer, sorceress, barbarian, cleric, thief, assassin,
elf, dwarf, orc, goblin, human, half-elf, gnome, halfling, troll, ogre, mercenary, guard, soldier, captain, priest, priestess, shaman, necromancer, warlock, samurai, ninja, gladiator, berserker,
scout, blacksmith, queen, king, prince, princess, hero, villain, elven archer, dwarf warrior, old wizard, young knight, bounty hunter, space marine, alchemist, squire, viking, nomad, fisherman, shield maiden""")

TRAITS = listed("""brave, old, young, mighty, feared, famous, cunning, silent, exiled, wandering, grim, loyal, proud, fierce, one-eyed, tall, clever, retired, noble, mysterious, reckless, humble, scarred, legendary""")
PLACES = listed("""the north, the old forest, the mines, the coast, the high tower, the desert, the frozen hills, the capital, the swamp, the islands, the borderlands, the eastern kingdom, the lost city, the dark woods""")
EPITHETS = listed("""the Brave, the Bold, the Wise, the Swift, the Red, the Grey, the Silent, Ironfist, Stormborn, Oakenshield, Blackthorn, Shadowstep, Fireheart, Stonefist, Nightblade, Ravenclaw, Wolfsbane, Bloodaxe, Moonshadow, Thunderfist, Goldleaf, Frostbeard,
of the North, of Oakvale, of Riverrun, the Younger, the Elder, the Terrible, Windrider, Deepwater, Ashwood, Silverhand, Lightfoot, the Black, the Fearless""")
