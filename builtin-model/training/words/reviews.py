"""Clauses of reviews, written for this project: what people say when they liked a thing or did not, and what says neither.

A clause begins in lower case (except "I") and ends without a full stop, so that it can stand alone or behind another.
"""


def clauses(text: str) -> list:
    return [clause.strip() for clause in text.replace("\n", " ").split(";") if clause.strip()]


PRAISING_ADJECTIVES = clauses("""
wonderful; great; excellent; amazing; fantastic; brilliant; superb; lovely; delightful; charming; perfect; outstanding; marvelous; beautiful;
enjoyable; impressive; splendid; terrific; awesome; pleasant; friendly; helpful; reliable; comfortable; delicious; fun; exciting; inspiring;
elegant; remarkable; fresh; cozy; clever; smooth; magnificent; stunning; flawless; generous; satisfying; refreshing; thoughtful; incredible;
adorable; touching; solid; fabulous; exceptional; good; nice; gorgeous; first-rate; top-notch; world-class; spotless; immaculate; gripping;
hilarious; heartwarming; moving; captivating; engaging; riveting; witty; funny; powerful; unforgettable; memorable; breathtaking; masterful;
tasty; mouth-watering; juicy; tender; crispy; creamy; flavorful; yummy; scrumptious; divine; heavenly; attentive; courteous; polite;
welcoming; warm; kind; professional; efficient; prompt; quick; fast; responsive; intuitive; easy to use; sturdy; durable; well made;
well built; lightweight; handy; practical; useful; versatile; sleek; stylish; crisp; sharp; quiet; peaceful; relaxing; clean; tidy; spacious;
bright; modern; luxurious; affordable; good value; a bargain; a steal; a gem; a masterpiece; a treat; a delight; a joy; a triumph; a winner;
a must; a classic; a hit; a lifesaver; a game changer; a breath of fresh air; spot on; second to none; out of this world; beyond words; phenomenal;
sublime; exquisite; dazzling; enchanting; magical; mesmerizing; addictive; compelling; thrilling; insightful; original; inventive; rich;
authentic; great fun; pure joy; well worth it; worth the money; worth every penny; worth every cent; worth the wait; very good; pretty good;
rather good; quite good; surprisingly good; really nice; better than expected; better than I hoped; the best I have ever had; the best yet;
hard to beat; nothing short of brilliant; a real find; a pleasure; ten out of ten; five stars; faultless; superior; stellar; ideal; favourite;
likeable; tremendous; extraordinary; uplifting; vivid; graceful; honest; sincere; knowledgeable; patient; caring; accurate; robust; rock solid
""")

CONDEMNING_ADJECTIVES = clauses("""
terrible; awful; horrible; bad; boring; disappointing; dreadful; ugly; dirty; rude; slow; broken; useless; annoying; poor; cheap; cold; noisy;
painful; disgusting; miserable; unpleasant; confusing; clumsy; bland; stale; weak; unreliable; uncomfortable; frustrating; dull; tedious;
lousy; mediocre; pathetic; ridiculous; sloppy; overpriced; faulty; nasty; gloomy; depressing; worthless; shabby; unbearable; tasteless;
dishonest; careless; chaotic; atrocious; abysmal; appalling; horrendous; horrid; ghastly; filthy; grubby; smelly; greasy; soggy; burnt;
undercooked; overcooked; dry; tough; chewy; rubbery; rancid; watery; flavorless; salty beyond belief; inedible; lukewarm; tiny; cramped;
stuffy; damp; mouldy; run-down; dated; outdated; loud; dingy; predictable; cliched; forgettable; shallow; pointless; pretentious;
overrated; overlong; long-winded; incoherent; lifeless; wooden; unfunny; cringeworthy; laughable; flat; uninspired; lazy; messy; a mess;
a letdown; a disappointment; a disaster; a nightmare; a joke; a flop; a rip-off; a scam; a waste; a waste of time; a waste of money; a chore;
a shambles; an insult; an ordeal; a headache; junk; garbage; rubbish; trash; dismal; dire; unimpressive; unacceptable; unprofessional;
unhelpful; incompetent; arrogant; dismissive; impolite; indifferent; inattentive; buggy; laggy; glitchy; clunky; sluggish; flimsy; fragile;
shoddy; defective; badly made; poorly designed; poorly written; badly organised; a pain to use; too expensive; way too expensive; not worth it;
not worth the money; not worth the hype; below average; second-rate; third-rate; subpar; substandard; inferior; underwhelming; so-so at best;
mediocre at best; nothing special; nothing to write home about; worse than expected; worse than I feared; the worst I have ever had;
the worst yet; hard to bear; beyond repair; a lost cause; one star; zero stars; two out of ten; infuriating; exasperating; grim; vile; foul;
revolting; repulsive; sickening; tiresome; monotonous; soulless; bloated; muddled; contrived; wretched; a bore; misleading; deceptive; crude;
scratchy; wobbly; leaky; insulting; hopeless; tacky; tired; unwatchable; unreadable; unusable; unplayable; pitiful; feeble; unhygienic
""")

# domain: things judged, and clauses that praise, condemn or do neither
DOMAINS = {
    "film": {
        "things": clauses("""the film; the movie; this film; this movie; the series; the show; the plot; the acting; the script; the dialogue;
            the soundtrack; the ending; the camera work; the lead actor; the second half; the first season; the documentary; the comedy;
            the thriller; the play; the story; the sequel; the remake; the directing; the opening scene; the cast; the finale; the last episode"""),
        "good": clauses("""I laughed from start to finish; I was on the edge of my seat; I cried happy tears; the two hours flew by;
            it kept me hooked until the end; I would watch it again tomorrow; I could watch it over and over; the cast is on top form;
            the ending gave me goosebumps; not a single dull moment; there is not a wasted scene; it deserves every award it got;
            the jokes land every time; it stayed with me for days; I have seen it three times already; I didn't want it to end;
            the lead gives the performance of a lifetime; the twists kept me guessing; go and see it; don't miss this one;
            it had the whole audience cheering; it lives up to the hype; it tugs at the heartstrings; it made me laugh out loud;
            we were glued to the screen; a feast for the eyes; the whole cinema was in stitches; it is the best thing I have seen all year;
            the chemistry between the leads is electric; I was moved to tears; a love letter to cinema; the best film of the year by far;
            it never drags; the script crackles with wit; it restored my faith in comedies; even my teenagers loved it; I left the cinema smiling;
            you won't be able to look away; the story pulls you in from the first minute; it ticks all the boxes"""),
        "bad": clauses("""I walked out halfway through; I fell asleep after twenty minutes; I kept checking my watch; I want those two hours back;
            I turned it off after ten minutes; the plot makes no sense; the plot has more holes than a sieve; the jokes fall flat;
            nobody in the cinema laughed; the dialogue made me cringe; I couldn't care less about the characters; it drags on forever;
            save your money and stay at home; the ending ruined it; the ending came out of nowhere; the actors read their lines as if half asleep;
            I have seen better acting in school plays; it goes on and on without a point; I gave up after the second episode;
            the trailer was the best part; it doesn't live up to the hype; all style and no substance; don't bother; skip it;
            two hours of my life I will never get back; the special effects look ten years old; it left me cold; I was bored to tears;
            I couldn't wait for it to end; the sequel nobody asked for; half of the audience left; the book was so much better;
            it tries too hard to be funny; you can see the twist coming a mile off; it never gets going; it runs out of ideas after an hour;
            the story goes nowhere; it put me to sleep; I have no idea how this won an award; even the popcorn was more exciting"""),
        "neutral": clauses("""we saw it on Saturday evening; it runs for two hours; I watched it with my sister; it is set in a small town;
            it is about a retired teacher; the cinema was half full; it came out last year; a friend lent me the disc; it is based on a true story;
            I watched it on the plane; there are six episodes; it was directed by a newcomer"""),
    },
    "book": {
        "things": clauses("""the book; the novel; this book; the author; the writing; the prose; the first chapter; the last chapter; the memoir;
            the translation; the main character; the audiobook; the narrator; the album; the song; the concert; the singer; the band;
            the exhibition; the magazine; the podcast; the cookbook; the poem; the new record; the game; the board game; the recording"""),
        "good": clauses("""I couldn't put it down; I read it in one sitting; I stayed up all night to finish it; I was hooked from page one;
            I have already bought copies for all my friends; I didn't want it to end; I can't wait for the next one; it kept me turning the pages;
            I devoured it in a weekend; it is one of my favourites now; it changed the way I think; I have reread it twice;
            it has earned a place on my shelf; every sentence sings; the characters feel like old friends; it speaks straight to the heart;
            you will not regret reading it; I learned something on every page; it stays with you long after the last page;
            I have had it on repeat all week; the crowd went wild; it gave me goosebumps; we danced all night; her voice sent shivers down my spine;
            he writes like a dream; the author is back at her best; I'll be reading everything she writes; it made a long flight feel short;
            my kids ask for it every night; hours of fun for the whole family; we play it every weekend; a page-turner;
            there is not a weak song on it; I smiled all the way home"""),
        "bad": clauses("""I gave up after fifty pages; I couldn't get past the first chapter; I had to force myself to finish it;
            I skipped whole chapters; I nearly threw it across the room; it was a struggle to get to the end; nothing happens for 300 pages;
            the characters are made of cardboard; the ending felt rushed; full of spelling mistakes; it reads like a first draft;
            it could have been half as long; I don't understand the fuss; I wish I had borrowed it instead of buying it;
            it went straight to the charity shop; I wouldn't wish it on my worst enemy; I lost interest by the second part;
            it bored me stiff; the story never takes off; I returned it to the library unfinished; the author should be ashamed;
            every song sounds the same; the sound was so bad that we left early; she sang out of tune; they played for just forty minutes;
            I fell asleep over it every night; it is gathering dust on the shelf; I have read shopping lists with more feeling;
            the rules make no sense; we played it once and never again; I put it down and never picked it up again;
            the narrator's voice got on my nerves; life is too short for this book; I had expected more from this author"""),
        "neutral": clauses("""I got it for my birthday; it has about 300 pages; it is the second part of a series; I read it on holiday;
            I picked it up at the airport; my book club chose it; it takes place in the nineteenth century; I listened to it in the car;
            it came out in paperback last month; the concert began at eight; I borrowed it from my brother; it is for two to four players"""),
    },
    "food": {
        "things": clauses("""the food; the pizza; the pasta; the soup; the steak; the fish; the dessert; the curry; the burger; the salad; the coffee;
            the wine; the breakfast; the dinner; the lunch; the restaurant; this place; the menu; the cake; the sauce; the bread; the waiter;
            the waitress; the service; the meal; the sushi; the kebab; the ice cream; the tea; the sandwich; the main course; the starter;
            the buffet; the cafe; the bakery; the chef; the rice; the chicken; the takeaway; the pub; the risotto; the lamb; the omelette"""),
        "good": clauses("""it melts in the mouth; I licked the plate clean; we ordered seconds; everything was cooked to perfection;
            my mouth is watering just thinking about it; the portions were generous; the staff made us feel at home; we will be back;
            I can't wait to go back; best meal I have had in years; we left full and happy; my compliments to the chef;
            the waiter went out of his way to help; every bite was a joy; I could eat there every day; you can taste that everything is fresh;
            it tasted just like my grandmother's; the flavours were spot on; nobody left a crumb; the kids cleaned their plates;
            it hit the spot; the dessert alone is worth the trip; it is my new favourite place; you must try the fish;
            great value for the money; prices are fair; we were served within minutes; they went the extra mile for my birthday;
            the fish was as fresh as it gets; the crust was crisp and light; I would drive an hour for that soup; I dream about that sauce;
            a hidden gem; they remembered our names; the meat fell off the bone; it left us wanting more"""),
        "bad": clauses("""it left a bad taste in my mouth; I found a hair in my soup; we waited over an hour for our food; my steak was like a shoe;
            the chips were soggy; the meat was raw in the middle; the fish smelled off; the waiter ignored us; it came out stone cold;
            I was sick all night; we got food poisoning; I left most of it on the plate; the portions were tiny; they overcharged us;
            nobody came to take our order; they got our order wrong twice; it tasted like cardboard; I have had better food in a hospital;
            I sent it back; we left hungry; the tables were sticky; my dog wouldn't eat it; the bread was rock hard; it was swimming in oil;
            we won't be going back; I wouldn't feed it to my dog; the bill was a shock; the waitress rolled her eyes at us;
            even the water tasted odd; they should be ashamed to charge for that; the coffee tasted like dishwater; half of the menu was sold out;
            the service was at a snail's pace; it was burnt on the outside and frozen inside; the salad was brown at the edges;
            frozen food from the microwave at top prices"""),
        "neutral": clauses("""we had a table by the window; we were a party of six; I ordered the soup and the fish; we went there for lunch;
            it is next to the station; they open at noon; we ate there on a Tuesday; my husband had the lamb; it is a small place on the corner;
            we had booked a week before; they serve Italian food; it was our anniversary"""),
    },
    "hotel": {
        "things": clauses("""the hotel; our room; the room; the bed; the bathroom; the pool; the beach; the view; the reception; the staff at the desk;
            the flat; the campsite; the hostel; the location; the shower; the flight; the trip; the tour; the guide; the cruise; the spa; the lobby;
            the train; the ferry; the holiday; the museum; the balcony; the garden; the apartment; the cottage; the resort; the guest house;
            the minibar; the cleaning; the airline; the coach trip; the parking; the air conditioning"""),
        "good": clauses("""we slept like babies; the view took our breath away; we felt at home at once; we didn't want to leave;
            we have already booked for next year; the bed was like a cloud; nothing was too much trouble for the staff;
            they upgraded us for free; everything was within walking distance; it was spotlessly clean; the staff couldn't do enough for us;
            we woke up to the sound of the sea; the breakfast had everything you could wish for; a home away from home;
            it was the best holiday we ever had; they welcomed us with open arms; I would stay there again in a heartbeat;
            we couldn't have asked for more; the pictures don't do it justice; the children had the time of their lives;
            the guide knew everything and made us laugh; we wished we had booked a longer stay; a perfect place to unwind;
            the crew looked after us so well; it exceeded our expectations; I came back rested and happy; we landed early;
            the host thought of everything; there were fresh flowers in the room; I can't recommend it highly enough;
            the trip of a lifetime; we can't fault the place; it was a dream come true"""),
        "bad": clauses("""there were cockroaches in the bathroom; the sheets were stained; we didn't sleep a wink; the walls are paper thin;
            the room smelled of smoke; there was mould on the ceiling; there was no hot water; the air conditioning was broken;
            we checked out a day early; the pictures on the website are a lie; nobody answered at the desk; they lost our booking;
            they lost our luggage; the flight was delayed by nine hours; they refused to give us a refund; the bed was as hard as a board;
            I woke up covered in bites; there was a building site outside the window; the lift was out of order all week;
            the pool was green; hidden fees everywhere; they charged us for towels; the toilet was blocked; I would rather sleep in my car;
            it ruined our honeymoon; the guide was an hour late and in a bad mood; we were stuck on the bus all day; avoid it like the plague;
            the carpet had not been cleaned for years; we could hear every word from next door; the shower dripped all night;
            never again with this airline; we counted the hours until we could go home; the receptionist couldn't be bothered"""),
        "neutral": clauses("""we stayed for three nights; we arrived late in the evening; it is near the airport; our room was on the fourth floor;
            we travelled with two children; it was a business trip; we paid by card; the bus stops in front of the door; we went in October;
            check-in is at three; there are twenty rooms; we had booked half board"""),
    },
    "product": {
        "things": clauses("""the phone; the laptop; the camera; the battery; the screen; the keyboard; the speaker; the headphones set; the vacuum cleaner;
            the kettle; the blender; the printer; the charger; the cable; the watch; the jacket; the dress; the mattress; the sofa; the chair; the bike;
            the tent; the backpack; the drill; the toaster; the heater; the lamp; the product; this thing; the build quality; the packaging; the sound;
            the picture; the fabric; the zip; the colour; the size; the fit; the delivery; the tablet; the router; the coffee machine; the car; the toy;
            the knife; the pan; the shampoo; the cream; the perfume; the manual; the monitor; the mower; the umbrella; the microphone; the remote"""),
        "good": clauses("""it works like a charm; it does exactly what it says on the tin; it works right out of the box; it has never let me down;
            I use it every day; I don't know how I lived without it; it was worth every penny; I would buy it again; it fits like a glove;
            the battery lasts for days; it looks even better than in the pictures; it was set up in five minutes; it arrived a day early;
            it still looks like new after two years; my wife wants one too; I bought a second one for my mother; it makes life so much easier;
            it saves me hours; it is built to last; you get a lot for your money; best purchase of the year; I'm over the moon with it;
            my back pain is gone; it's as quiet as a mouse; it is the best one I have owned; I get compliments every time I wear it;
            it survived a fall without a scratch; it punches above its weight; so simple that my grandfather uses it; I can't fault it;
            no complaints whatsoever; it does the job and then some; my skin feels so soft; it beats models at twice the price;
            sound quality blew me away; the kids can't get enough of it; money well spent; go ahead and buy it; it is going strong after a year"""),
        "bad": clauses("""it broke after a week; it stopped working on the second day; it fell apart in my hands; the battery dies within an hour;
            it doesn't even turn on; I want my money back; I sent it straight back; it arrived damaged; it arrived with a cracked screen; parts were missing;
            it is going back tomorrow; the zip broke the first time I used it; it shrank in the first wash; the colour came off on my hands;
            it looks nothing like the picture; I wouldn't buy it again; don't waste your money; it is not fit for purpose; it smells of chemicals;
            it is louder than a plane; it overheats all the time; it gave me a rash; it leaks; you get what you pay for; cheaply made;
            it ended up in the bin; it scratches if you look at it; the instructions are useless; I regret buying it; it took six weeks to arrive;
            a total waste of cash; it died just after the warranty ran out; the handle came off; my old one was far better;
            I have had to replace it twice; the buttons stick; it keeps losing the connection; buyer beware; steer clear; it is collecting dust in a drawer"""),
        "neutral": clauses("""I ordered the black one; it came in a brown box; I bought it in March; it weighs about two kilos; I have had it for three weeks;
            it is a present for my father; it replaces my old one; I use it in the office; it comes with a cable; I paid with a voucher;
            it is made of steel; I bought the large size"""),
    },
    "service": {
        "things": clauses("""the service; the staff; customer service; the support team; the driver; the doctor; the dentist; the plumber; the hairdresser;
            the company; the bank; the shop; the salesman; the teacher; the course; the lesson; the gym; the trainer; the garage; the mechanic;
            the landlord; the nurse; the clinic; the insurance; the delivery man; the office; the hotline; the agency; the receptionist; the haircut;
            the workshop; the library; the manager; the school; the builder; the technician; the communication; the waiting time; the appointment"""),
        "good": clauses("""they went above and beyond; they solved my problem in minutes; they answered within the hour; they treated us like family;
            nothing was too much trouble; she took the time to explain everything; he fixed it on the spot; they kept their word; they refunded me at once;
            I felt in good hands; they really know their stuff; I recommend them to everyone; I won't go anywhere else; they made my day;
            she listened to me; he was on time and left everything clean; the whole thing went like clockwork; they charged a fair price;
            they replaced it without any questions; you can rely on them; I learned more in a week than in years at school; he has the patience of a saint;
            I have never looked so good; they saved our wedding; hats off to the team; I take my hat off to them; thumbs up; keep up the good work;
            thank you so much for your help; I walked out with a smile; they couldn't have been nicer; the team deserves a medal; a big thank you to everyone"""),
        "bad": clauses("""nobody answers the phone; I was on hold for an hour; they never called back; they passed me from one person to the next;
            they couldn't care less; he didn't even say hello; they treated me like dirt; they refused to help; they made me feel stupid;
            she hung up on me; they took my money and ran; they lost my documents; he turned up two hours late; he left a huge mess behind;
            they charged me twice; still waiting for my refund; they fobbed me off with excuses; I have never been treated so badly;
            they broke more than they repaired; nothing was fixed; they don't keep their promises; I am taking my business elsewhere;
            they should be ashamed of themselves; my emails went unanswered; they only want your money; it took three visits and it still doesn't work;
            he ruined my hair; I learned nothing; the teacher read from slides for hours; cancelled at the last minute; I have filed a complaint;
            stay away from these people; they laughed in my face; I left in tears; it was like talking to a brick wall"""),
        "neutral": clauses("""I called them on Monday; my appointment was at ten; they are on the main street; I have been a customer since May;
            there were two people before me; the office is on the second floor; I needed a new tyre; the course has ten lessons; I went there with my son;
            they sent an invoice; it was my first visit; I filled in the form online"""),
    },
    "app": {
        "things": clauses("""the app; the website; the update; the software; the new version; the interface; the game; the login; the program; the design;
            the free version; the search; the premium plan; the tutorial; the engine; the tool; the library; the plugin; the dashboard; the site;
            the checkout; the subscription; the documentation; the installer; the editor; the browser; the online shop; the graphics; the gameplay"""),
        "good": clauses("""it just works; it loads in a blink; it has made my work so much easier; I use it all day long; no ads and no tricks;
            I found everything in seconds; it syncs without a hitch; it is free and better than the paid ones; everything is where you expect it;
            the developers listen to their users; it never crashed once; the latest update made it even better; it helped me save a fortune;
            I can't live without it any more; I was up and running in two minutes; it is a joy to use; a big step forward; kudos to the developers;
            I upgraded to premium and don't regret it; the new look is a treat; it does everything I need; I am addicted to it in the best way;
            I recommended it to my whole team; hands down the best app of its kind; it runs like a dream; five stars from me; love it; simply love it;
            can't recommend it enough; well done"""),
        "bad": clauses("""it crashes every time I open it; it keeps freezing; it drains my battery; it is full of ads; it logs me out every day;
            the update broke everything; I lost all my data; it won't let me log in; I uninstalled it after five minutes; it asks for money at every turn;
            it hasn't worked since the last update; support never replied; it is riddled with bugs; it takes forever to load; it eats up all the memory;
            I cancelled my subscription; they keep charging me after I cancelled; you can't do anything without paying; nothing works as promised;
            give me the old version back; I have no idea where to find anything; it sends me spam; I deleted my account; a step backwards;
            error messages all day long; the menus are a maze; it is more trouble than it is worth; I gave up after ten minutes; please fix this;
            hate it; one star is too many; it made me want to throw my phone at the wall; what were they thinking"""),
        "neutral": clauses("""I installed it yesterday; I use the free version; it runs on my tablet; I signed up with my email; it was updated last week;
            it needs about 200 megabytes; a colleague told me about it; it is available in German; there is a dark mode; I use it for notes"""),
    },
}

GENERAL_GOOD = clauses("""
I loved it; I love it; I really enjoyed it; I enjoyed every minute; I loved every minute of it; it made my day; I would recommend it to anyone; highly recommended;
I highly recommend it; I recommend it to everyone; I can only recommend it; I am so happy with it; I am very satisfied; we were delighted; I'm impressed;
it exceeded my expectations; it surpassed all my hopes; it was even better than I had hoped; I was pleasantly surprised; what a pleasant surprise; what more could you want;
it couldn't have been better; it doesn't get better than this; I have nothing to complain about; no complaints here; can't complain; nothing to criticise;
I would do it again in a heartbeat; I'd go back any time; I'll be back for more; we had a great time; we had a blast; I had the time of my life; it was a joy;
it put a smile on my face; I can't stop smiling; I can't say enough good things about it; I have only good things to say; full marks; two thumbs up; ten out of ten;
I would give it six stars if I could; it gets top marks from me; it won me over; I fell in love with it; I am a fan; I'm hooked; count me in; it is right up my street;
it's just what I was looking for; it ticks every box; it does what it promises; it is worth a try; it is worth its weight in gold; well worth the money; worth every penny;
not bad at all; not bad; far from bad; not half bad; you can't go wrong with it; you won't be disappointed; it did not disappoint; it never disappoints; I wasn't disappointed;
I have never been happier with anything; I have never had a better one; there is nothing better; nobody does it better; I couldn't be happier; I couldn't ask for more;
I was sceptical at first but now I'm convinced; it restored my faith; it brightened up my week; hats off; bravo; chapeau; simply the best; the best of the best;
time well spent; money well spent; I don't regret it for a second; no regrets; I wouldn't change a thing; I wouldn't want to be without it; it knocked my socks off;
it blew me away; it took my breath away; it is in a class of its own; it stands head and shoulders above the rest; it hits all the right notes; it is the real deal;
thank you so much; thanks to everyone involved; a true pleasure from beginning to end; my whole family loved it; everyone was thrilled; even my picky friends were happy;
I can hardly find a fault; there's little to improve; it was hard not to like it; I don't see how it could be better; I've told all my friends about it; try it, you'll love it
""")

GENERAL_BAD = clauses("""
I hated it; I hate it; I did not enjoy it; I didn't like it; I don't like it; I didn't care for it; I can't recommend it; I wouldn't recommend it; I would not recommend it to anyone;
not recommended; I want my money back; I want a refund; it ruined my day; I'd never do it again; never again; once and never again; I warn everyone about it; it made me angry;
I will not come back; we won't be back; I won't be returning; it was a waste of time; it was a waste of money; what a waste; I am so unhappy with it; I am very dissatisfied;
it fell short of my expectations; it did not meet my expectations; it was not what I had hoped for; I expected more; I expected better; I had hoped for more; we were let down;
it let me down; I was bitterly disappointed; I'm disappointed; what a letdown; what a disappointment; what a joke; it was a pain; it got on my nerves; it drove me up the wall;
it left a lot to be desired; it leaves much to be desired; there is a lot of room for improvement; it was not good; it was not great; not good at all; it's not worth it; it's not worth the price;
not worth the trouble; it isn't worth a penny; nothing special; nothing to write home about; it is far from good; it's anything but good; not my cup of tea; I've seen better; I've had better;
I have never been so disappointed; I've never had a worse one; it can't get worse than this; it couldn't have been worse; it went from bad to worse; everything went wrong;
I would give it zero stars if I could; one star is generous; it doesn't deserve a single star; two thumbs down; I give it one out of ten; thanks for nothing; thanks but no thanks;
I was glad when it was over; I couldn't wait to leave; we left early; I gave up; I regret it; I wish I hadn't bothered; I should have listened to the reviews; don't bother; don't do it;
don't waste your time; don't fall for it; save your money; spend your money elsewhere; look elsewhere; keep away; avoid at all costs; stay away; you have been warned; beware;
it left a bad taste; it left me cold; I am not impressed; I was not impressed; I'm not a fan; I'm done with it; enough is enough; I have had enough; I've lost all trust;
it made my blood boil; it is beyond me how anyone can like this; I fail to see the point; I see no reason to go back; I can't think of anything good to say; there is nothing good about it;
it does not do what it promises; it is all talk; it is a far cry from what was promised; the hype is not deserved; it used to be better; it has gone downhill; it's gone to the dogs;
my whole family hated it; nobody liked it; everyone was annoyed; even the kids were bored; it is an insult to the customer; I'm still angry about it; I rue the day I bought it;
it was hard to like; I struggled to find anything to like; I don't understand all the praise; it could have been so much better; a missed opportunity; I'd rather have stayed at home; I would rather watch paint dry
""")

GOOD_VERBS = clauses("""
is a joy; was a joy from start to finish; made my day; blew me away; surprised me in the best way; won me over; exceeded my expectations; is worth every penny; never lets me down;
is the best I have come across; deserves five stars; deserves all the praise it gets; could not be better; put a smile on my face; is hard to beat; was right up my street; shines; delivers;
does not disappoint; did not disappoint; is not to be missed; gets better every time; works like a dream; left me speechless with joy; hit the spot; is just right; was everything I hoped for;
has it all; is a cut above the rest; stands out from the crowd; is money well spent; charmed us all; was handled with great care; impressed all of us; is a real treat; was better than I expected;
keeps me coming back; made everything easy; felt special; turned out great; was just what we needed; gets top marks
""")

BAD_VERBS = clauses("""
is a pain; was a nightmare from start to finish; ruined my day; left me cold; surprised me in the worst way; put me off for good; fell short of my expectations; isn't worth a penny; let me down badly;
is the worst I have come across; deserves no stars at all; doesn't deserve the praise it gets; could hardly be worse; made me angry; leaves a lot to be desired; was not my thing; fails; falls flat;
disappointed me; was a big letdown; is best avoided; gets worse every time; hardly works at all; left me speechless with anger; missed the mark; is just wrong; was nothing like I had hoped;
has nothing going for it; is no better than the rest at twice the price; bored us all; was handled without any care; annoyed all of us; is a real mess; was worse than I expected; drove me mad;
made everything harder; felt cheap; turned out badly; was the last thing we needed; gets no marks from me; does not work; doesn't do the job; is a complete failure
""")

INTENSIFIERS = clauses("really; very; so; truly; absolutely; quite; extremely; incredibly; rather; just; simply; pretty; totally; utterly; honestly; downright; seriously; particularly; unbelievably")
OPENERS = clauses("""honestly; to be honest; I must say; I have to say; in short; overall; all in all; in the end; well; wow; oh dear; frankly; to sum up; my verdict; for me; in my opinion; if you ask me;
    as for me; let me put it this way; believe me; what can I say; long story short; at the end of the day; as always; once again; after two weeks; so far; first visit; final thoughts; personally; I think; I find""")
CLOSERS = clauses("to say the least; in my book; if you ask me; period; that much is clear; no doubt about it; I think; for sure; and that's that; what else can I say; hands down; in every way; from start to finish; as usual; again")
CONTRASTS = ["{other}, but {own}", "{other}, but {own}", "{other}, yet {own}", "although {other}, {own}", "even though {other}, {own}", "though {other}, {own}", "while {other}, {own}", "{other}. However, {own}", "{other}. But {own}",
             "{other}. Still, {own}", "{other}. Nevertheless, {own}", "{other}; in the end, though, {own}", "{own}, even though {other}", "{own}, although {other}", "despite what people say, {own}",
             "I was told that {other}, but {own}", "my friend said {other}. I disagree: {own}", "I read that {other}. Well, {own}", "{other} at first, but overall {own}", "yes, {other}, but still {own}",
             "{other}. Apart from that, {own} and {own2}", "{own} and {own2}, even if {other}", "{other}, but that is the only thing; {own} and {own2}", "some say {other}, but {own}", "{other}? Not true, {own}"]

# Single words by their place in a sentence: "I {liked} it", "it {pleased} me", "{well} {done}", "I was {glad}", "full of {charm}".
LIKED = clauses("liked; loved; enjoyed; adored; appreciated; admired; relished; treasured; savoured; cherished; recommend; love; like; adore; would buy again; can recommend; was delighted with; am happy with; am pleased with; fell for; was impressed by; am in love with; will keep using; can't praise enough; swear by; was taken with; can't get enough of; look forward to more of; would happily pay for; never get tired of")
DISLIKED = clauses("hated; disliked; loathed; despised; detested; regretted; resented; couldn't stand; can't stand; didn't like; don't like; did not enjoy; didn't care for; can't recommend; don't recommend; wouldn't buy; returned; gave up on; got tired of; was disappointed by; am unhappy with; am fed up with; was annoyed by; complained about; had trouble with; struggled with; wasted my money on; wasted an evening on; was put off by; wouldn't pay for; am sick of; regret buying; could have done without; was bored by; never want to see")
PLEASED = clauses("impressed; delighted; charmed; amazed; thrilled; pleased; moved; inspired; cheered; enchanted; touched; dazzled; fascinated; comforted; entertained; helped; convinced; relaxed; refreshed; captivated; wowed; rewarded; spoiled; excited; astonished")
DISPLEASED = clauses("annoyed; bored; irritated; disappointed; frustrated; angered; disgusted; upset; insulted; confused; exhausted; offended; bothered; worried; shocked; enraged; saddened; tired; appalled; failed; cheated; misled; let down; tricked; infuriated; horrified; embarrassed")
WELL = clauses("beautifully; perfectly; brilliantly; wonderfully; superbly; well; nicely; lovingly; carefully; expertly; cleverly; skilfully; masterfully; elegantly; flawlessly; tastefully; exquisitely; splendidly; impeccably; very well; really well; so well; thoughtfully; fairly; neatly")
BADLY = clauses("badly; poorly; terribly; horribly; carelessly; sloppily; awfully; dreadfully; lazily; clumsily; very badly; so badly; shockingly; atrociously; cheaply; hopelessly; crudely; incompetently; wretchedly; not well; not properly; never properly; ineptly; miserably")
DONE = clauses("made; written; acted; cooked; designed; organised; built; done; presented; prepared; planned; put together; directed; packed; explained; served; maintained; cleaned; thought out; executed; produced; finished; run; managed; priced; translated; sung; filmed; seasoned; equipped; handled; staffed; looked after")
GLAD = clauses("glad; happy; pleased; thrilled; delighted; overjoyed; satisfied; content; amazed; impressed; grateful; thankful; excited; moved; touched; enchanted; over the moon; pleasantly surprised; more than happy; won over; blown away; in good hands; very content; well looked after; charmed")
SORRY = clauses("angry; upset; furious; annoyed; disappointed; frustrated; disgusted; bored; shocked; appalled; unhappy; dissatisfied; fed up; let down; cheated; ripped off; irritated; livid; horrified; ashamed; disheartened; deceived; unimpressed; sorry that I bought it; sick of it; at my wits' end; close to tears; bored out of my mind; tired of it; gutted; dismayed")
CHARM = clauses("charm; wit; warmth; heart; humour; love; energy; surprises; flavour; character; good ideas; great tunes; life; style; passion; joy; imagination; good advice; clever details; beautiful moments; class; soul; substance; quality; kindness; tension; depth; magic; personality; suspense")
FLAWS = clauses("bugs; flaws; cliches; mistakes; errors; holes; problems; faults; defects; dirt; dust; stains; scratches; ads; spam; noise; excuses; lies; empty promises; hidden costs; delays; typos; plot holes; rude people; bad jokes; crashes; stink; grease; mould; nonsense; padding; false promises")
